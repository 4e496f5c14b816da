#include "reference/optimizers/newton_schulz.hpp"

#include <algorithm>
#include <sstream>

#include "reference/core/error.hpp"
#include "reference/core/options.hpp"

namespace canzona::reference {
namespace {

// Values as published: simple in KellerJordan/Muon@857d1ad muon.py; quintic and polar_express in
// NVIDIA-NeMo/Emerging-Optimizers@fd77292.
const std::vector<Coefficients> kSimple{{3.4445, -4.7750, 2.0315}};
const std::vector<Coefficients> kQuintic{{4.0848, -6.8946, 2.9270},
                                         {3.9505, -6.3029, 2.6377},
                                         {3.7418, -5.5913, 2.3037},
                                         {2.8769, -3.1427, 1.2046},
                                         {2.8366, -3.0525, 1.2012}};
const std::vector<Coefficients> kPolarExpress{
    {8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184}, {3.9096, -2.8234, 0.5250}, {3.2856, -2.4153, 0.4853},
    {2.2779, -1.6198, 0.3985},   {1.8726, -1.2307, 0.3585}, {1.8564, -1.2132, 0.3568}, {1.8750, -1.2500, 0.3750}};

constexpr const char* kAllowed = "simple, quintic, polar_express, or a list 'a,b,c; a,b,c; …'";

std::vector<Coefficients> parse_list(const std::string& text) {
  const auto reject = [&] { return InputError("", "coefficients", "'" + text + "'", kAllowed); };
  std::vector<Coefficients> list;
  std::stringstream triples(text);
  for (std::string triple; std::getline(triples, triple, ';');) {
    std::erase(triple, ' ');
    std::stringstream numbers(triple);
    std::vector<double> values;
    for (std::string number; std::getline(numbers, number, ',');) {
      try {
        values.push_back(parse_number("coefficients", number, -1e6, 1e6));
      } catch (const InputError&) {
        throw reject();
      }
    }
    if (values.size() != 3 || triple.back() == ',') throw reject();
    list.push_back({values[0], values[1], values[2]});
  }
  if (list.empty()) throw reject();
  return list;
}

}  // namespace

std::vector<Coefficients> newton_schulz_coefficients(const std::string& set, std::int64_t steps) {
  const bool repeats_last = set == "polar_express";
  const std::vector<Coefficients> list = set == "simple"    ? kSimple
                                         : set == "quintic" ? kQuintic
                                         : repeats_last     ? kPolarExpress
                                                            : parse_list(set);
  std::vector<Coefficients> coefficients;
  for (std::size_t step = 0; step < static_cast<std::size_t>(steps); ++step) {
    coefficients.push_back(list[repeats_last ? std::min(step, list.size() - 1) : step % list.size()]);
  }
  return coefficients;
}

template <class Scalar>
Matrix<Scalar> newton_schulz(const Matrix<Scalar>& matrix, const std::vector<Coefficients>& coefficients, double eps,
                             EpsForm form, DType arithmetic) {
  const auto round = [arithmetic](Matrix<Scalar> value) { return rounded(arithmetic, std::move(value)); };
  const double norm = frobenius_norm(matrix);
  if (norm == 0) return Matrix<Scalar>::Zero(matrix.rows(), matrix.cols());
  const double divisor = form == EpsForm::add ? norm + eps : std::max(norm, eps);

  const bool transposed = matrix.rows() > matrix.cols();
  Matrix<Scalar> X = transposed ? Matrix<Scalar>(matrix.transpose()) : matrix;
  X = round((X.template cast<double>() / divisor).template cast<Scalar>());
  for (const auto& [a, b, c] : coefficients) {
    // A = XXᵀ;  B = bA + cA²;  X ← aX + BX
    const Matrix<Scalar> A = round(X * X.transpose());
    const Matrix<Scalar> A2 = round(A * A);
    const Matrix<Scalar> B = round(round(static_cast<Scalar>(b) * A) + round(static_cast<Scalar>(c) * A2));
    const Matrix<Scalar> BX = round(B * X);
    X = round(round(static_cast<Scalar>(a) * X) + BX);
  }
  return transposed ? Matrix<Scalar>(X.transpose()) : X;
}

template Matrix<float> newton_schulz(const Matrix<float>&, const std::vector<Coefficients>&, double, EpsForm, DType);
template Matrix<double> newton_schulz(const Matrix<double>&, const std::vector<Coefficients>&, double, EpsForm, DType);

}  // namespace canzona::reference
