// Newton–Schulz orthogonalization: an odd polynomial that drives every singular value towards 1.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "reference/core/dtype.hpp"
#include "reference/core/matrix.hpp"

namespace canzona::reference {

/// X ← aX + b(XXᵀ)X + c(XXᵀ)²X
using Coefficients = std::array<double, 3>;

/// `steps` coefficient triples from a named set (simple, quintic, polar_express) or a list "a,b,c; a,b,c; …".
/// Shorter sets are cycled; polar_express repeats its last. Throws InputError on anything else.
std::vector<Coefficients> newton_schulz_coefficients(const std::string& set, std::int64_t steps);

/// How eps enters the normalisation: X = M/(‖M‖ + eps), or X = M/max(‖M‖, eps).
enum class EpsForm { add, max };

/// The orthogonalization of `matrix`. The norm is taken in fp64 before any cast; the products run in `arithmetic`,
/// bf16 and fp16 emulated by rounding after every operation (inputs rounded, fp32 accumulation). Zero gives zero.
template <class Scalar>
Matrix<Scalar> newton_schulz(const Matrix<Scalar>& matrix, const std::vector<Coefficients>& coefficients, double eps,
                             EpsForm form, DType arithmetic);

extern template Matrix<float> newton_schulz(const Matrix<float>&, const std::vector<Coefficients>&, double, EpsForm,
                                            DType);
extern template Matrix<double> newton_schulz(const Matrix<double>&, const std::vector<Coefficients>&, double, EpsForm,
                                             DType);

}  // namespace canzona::reference
