// cuSOLVER: eigenvalues and QR by Eigen, on the stream that the handle has at the time of the call.
#include <cusolverDn.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <limits>

#include "tests/emulated_gpu/internal.hpp"
#include "tests/emulated_gpu/memory.hpp"
#include "tests/emulated_gpu/streams.hpp"

namespace emulated = canzona::emulated_gpu;

struct cusolverDnContext {
  cudaStream_t stream = nullptr;
};

namespace canzona::emulated_gpu {

namespace {

template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;
template <class Scalar>
using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;
template <class Scalar>
using View = Eigen::Map<Matrix<Scalar>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <class Scalar>
using VectorView = Eigen::Map<Vector<Scalar>>;

template <class Scalar>
constexpr Scalar kNan = std::numeric_limits<Scalar>::quiet_NaN();

template <class Scalar>
View<Scalar> view(Scalar* data, int rows, int columns, int leading) {
  return View<Scalar>(data, rows, columns, Eigen::OuterStride<>(leading));
}

int work_elements(int rows, int columns) { return std::max(1, rows + 32 * columns); }

template <class Scalar>
Operand matrix_operand(const Scalar* data, int rows, int columns, int leading) {
  const std::size_t elements =
      rows == 0 || columns == 0
          ? 0
          : static_cast<std::size_t>(columns - 1) * static_cast<std::size_t>(leading) + static_cast<std::size_t>(rows);
  return {"A", data, elements * sizeof(Scalar)};
}

template <class Scalar>
Operand vector_operand(const char* name, const Scalar* data, int elements) {
  return {name, data, static_cast<std::size_t>(elements) * sizeof(Scalar)};
}

/// The solver overwrites its whole work space: two streams that share one must show as a race.
template <class Scalar>
void use_work(Scalar* work, int elements) {
  std::fill_n(work, elements, kNan<Scalar>);
}

/// Checks what all calls have in common, and queues the body, which returns what `info` shall be.
template <class Body>
cusolverStatus_t launch(const char* caller, cusolverDnHandle_t handle, bool valid,
                        std::initializer_list<Operand> operands, int* info, Body body) {
  if (handle == nullptr) return CUSOLVER_STATUS_NOT_INITIALIZED;
  if (!valid) return CUSOLVER_STATUS_INVALID_VALUE;
  Stream* stream = launchable_stream(caller, handle->stream);
  if (stream == nullptr || !are_usable(caller, stream->device(), operands) ||
      !are_usable(caller, stream->device(), {{"info", info, sizeof *info}})) {
    return CUSOLVER_STATUS_EXECUTION_FAILED;
  }
  stream->push([=] { *info = body(); });
  return CUSOLVER_STATUS_SUCCESS;
}

/// The eigenvalues in rising order, and where asked for the eigenvectors in place of A.
template <class Scalar>
int decompose(View<Scalar> a, bool lower, bool vectors, VectorView<Scalar> values, bool fails) {
  Matrix<Scalar> full = lower ? Matrix<Scalar>(a.template selfadjointView<Eigen::Lower>())
                              : Matrix<Scalar>(a.template selfadjointView<Eigen::Upper>());
  if (!fails && full.allFinite()) {
    const Eigen::SelfAdjointEigenSolver<Matrix<Scalar>> solver(
        full, vectors ? Eigen::ComputeEigenvectors : Eigen::EigenvaluesOnly);
    if (solver.info() == Eigen::Success) {
      values = solver.eigenvalues();
      if (vectors) {
        a = solver.eigenvectors();
      } else {
        a.setConstant(kNan<Scalar>);
      }
      return 0;
    }
  }
  a.setConstant(kNan<Scalar>);
  values.setConstant(kNan<Scalar>);
  return 1;
}

template <class Scalar>
cusolverStatus_t syevd(const char* caller, cusolverDnHandle_t handle, cusolverEigMode_t mode, cublasFillMode_t triangle,
                       int n, Scalar* a, int leading, Scalar* values, Scalar* work, int work_size, int* info) {
  const bool valid = (mode == CUSOLVER_EIG_MODE_VECTOR || mode == CUSOLVER_EIG_MODE_NOVECTOR) &&
                     (triangle == CUBLAS_FILL_MODE_LOWER || triangle == CUBLAS_FILL_MODE_UPPER) && n >= 0 &&
                     leading >= std::max(1, n) && work_size >= work_elements(n, n);
  const bool fails = valid && fails_this_factorization();
  return launch(caller, handle, valid,
                {matrix_operand(a, n, n, leading), vector_operand("the eigenvalues", values, n),
                 vector_operand("the work space", work, work_size)},
                info, [=] {
                  use_work(work, work_size);
                  if (n == 0) return 0;
                  return decompose(view(a, n, n, leading), triangle == CUBLAS_FILL_MODE_LOWER,
                                   mode == CUSOLVER_EIG_MODE_VECTOR, VectorView<Scalar>(values, n), fails);
                });
}

/// R on and above the diagonal, the reflectors below it.
template <class Scalar>
int factorize(View<Scalar> a, VectorView<Scalar> scales, bool fails) {
  const Matrix<Scalar> copy = a;
  if (fails || !copy.allFinite()) {
    a.setConstant(kNan<Scalar>);
    scales.setConstant(kNan<Scalar>);
    return 1;
  }
  const Eigen::HouseholderQR<Matrix<Scalar>> qr(copy);
  a = qr.matrixQR();
  scales = qr.hCoeffs();
  return 0;
}

/// The first columns of Q = H_1 ... H_k in place of the reflectors.
template <class Scalar>
int form_q(View<Scalar> a, const Vector<Scalar>& scales) {
  const Matrix<Scalar> reflectors = a.leftCols(scales.size());
  if (!reflectors.allFinite() || !scales.allFinite()) {
    a.setConstant(kNan<Scalar>);
    return 1;
  }
  Matrix<Scalar> q = Matrix<Scalar>::Identity(a.rows(), a.cols());
  q.applyOnTheLeft(Eigen::householderSequence(reflectors, scales));
  a = q;
  return 0;
}

cusolverStatus_t report_work(cusolverDnHandle_t handle, bool valid, int rows, int columns, int* work_size) {
  if (handle == nullptr) return CUSOLVER_STATUS_NOT_INITIALIZED;
  if (!valid || work_size == nullptr) return CUSOLVER_STATUS_INVALID_VALUE;
  *work_size = work_elements(rows, columns);
  return CUSOLVER_STATUS_SUCCESS;
}

bool is_matrix(int rows, int columns, int leading) { return rows >= 0 && columns >= 0 && leading >= std::max(1, rows); }

template <class Scalar>
cusolverStatus_t geqrf(const char* caller, cusolverDnHandle_t handle, int m, int n, Scalar* a, int leading,
                       Scalar* scales, Scalar* work, int work_size, int* info) {
  const bool valid = is_matrix(m, n, leading) && work_size >= work_elements(m, n);
  const bool fails = valid && fails_this_factorization();
  const int reflectors = std::min(m, n);
  return launch(caller, handle, valid,
                {matrix_operand(a, m, n, leading), vector_operand("tau", scales, reflectors),
                 vector_operand("the work space", work, work_size)},
                info, [=] {
                  use_work(work, work_size);
                  if (reflectors == 0) return 0;
                  return factorize(view(a, m, n, leading), VectorView<Scalar>(scales, reflectors), fails);
                });
}

bool has_first_columns(int m, int n, int k, int leading) {
  return is_matrix(m, n, leading) && k >= 0 && k <= n && n <= m;
}

template <class Scalar>
cusolverStatus_t orgqr(const char* caller, cusolverDnHandle_t handle, int m, int n, int k, Scalar* a, int leading,
                       const Scalar* scales, Scalar* work, int work_size, int* info) {
  const bool valid = has_first_columns(m, n, k, leading) && work_size >= work_elements(m, n);
  return launch(caller, handle, valid,
                {matrix_operand(a, m, n, leading), vector_operand("tau", scales, k),
                 vector_operand("the work space", work, work_size)},
                info, [=] {
                  use_work(work, work_size);
                  if (n == 0) return 0;
                  return form_q(view(a, m, n, leading), Vector<Scalar>(Eigen::Map<const Vector<Scalar>>(scales, k)));
                });
}

}  // namespace

}  // namespace canzona::emulated_gpu

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
  if (handle == nullptr) return CUSOLVER_STATUS_INVALID_VALUE;
  Eigen::l1CacheSize();  // Eigen's first look at the caches must not fall into a stream, which it would order
  *handle = new cusolverDnContext;
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
  delete handle;
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUSOLVER_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSsyevd_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t, cublasFillMode_t, int n,
                                             const float*, int leading, const float*, int* work_size) {
  return emulated::report_work(handle, emulated::is_matrix(n, n, leading), n, n, work_size);
}

cusolverStatus_t cusolverDnDsyevd_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t, cublasFillMode_t, int n,
                                             const double*, int leading, const double*, int* work_size) {
  return emulated::report_work(handle, emulated::is_matrix(n, n, leading), n, n, work_size);
}

cusolverStatus_t cusolverDnSsyevd(cusolverDnHandle_t handle, cusolverEigMode_t mode, cublasFillMode_t triangle, int n,
                                  float* a, int leading, float* values, float* work, int work_size, int* info) {
  return emulated::syevd("cusolverDnSsyevd", handle, mode, triangle, n, a, leading, values, work, work_size, info);
}

cusolverStatus_t cusolverDnDsyevd(cusolverDnHandle_t handle, cusolverEigMode_t mode, cublasFillMode_t triangle, int n,
                                  double* a, int leading, double* values, double* work, int work_size, int* info) {
  return emulated::syevd("cusolverDnDsyevd", handle, mode, triangle, n, a, leading, values, work, work_size, info);
}

cusolverStatus_t cusolverDnSgeqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, float*, int leading,
                                             int* work_size) {
  return emulated::report_work(handle, emulated::is_matrix(m, n, leading), m, n, work_size);
}

cusolverStatus_t cusolverDnSgeqrf(cusolverDnHandle_t handle, int m, int n, float* a, int leading, float* scales,
                                  float* work, int work_size, int* info) {
  return emulated::geqrf("cusolverDnSgeqrf", handle, m, n, a, leading, scales, work, work_size, info);
}

cusolverStatus_t cusolverDnSorgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const float*, int leading,
                                             const float*, int* work_size) {
  return emulated::report_work(handle, emulated::has_first_columns(m, n, k, leading), m, n, work_size);
}

cusolverStatus_t cusolverDnSorgqr(cusolverDnHandle_t handle, int m, int n, int k, float* a, int leading,
                                  const float* scales, float* work, int work_size, int* info) {
  return emulated::orgqr("cusolverDnSorgqr", handle, m, n, k, a, leading, scales, work, work_size, info);
}

cusolverStatus_t cusolverDnDgeqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, double*, int leading,
                                             int* work_size) {
  return emulated::report_work(handle, emulated::is_matrix(m, n, leading), m, n, work_size);
}

cusolverStatus_t cusolverDnDgeqrf(cusolverDnHandle_t handle, int m, int n, double* a, int leading, double* scales,
                                  double* work, int work_size, int* info) {
  return emulated::geqrf("cusolverDnDgeqrf", handle, m, n, a, leading, scales, work, work_size, info);
}

cusolverStatus_t cusolverDnDorgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const double*, int leading,
                                             const double*, int* work_size) {
  return emulated::report_work(handle, emulated::has_first_columns(m, n, k, leading), m, n, work_size);
}

cusolverStatus_t cusolverDnDorgqr(cusolverDnHandle_t handle, int m, int n, int k, double* a, int leading,
                                  const double* scales, double* work, int work_size, int* info) {
  return emulated::orgqr("cusolverDnDorgqr", handle, m, n, k, a, leading, scales, work, work_size, info);
}
