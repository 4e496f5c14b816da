// The BLAS and LAPACK that the host device calls, by Eigen: linked instead of OpenBLAS where the thread sanitizer has
// to see every access. Slow.
#include <cblas.h>

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <type_traits>

namespace {

template <class Scalar>
using RowMajor = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using ColumnMajor = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;

template <class Scalar>
RowMajor<Scalar> operand(CBLAS_TRANSPOSE transpose, int rows, int cols, const Scalar* data, int pitch) {
  const bool turned = transpose == CblasTrans;
  const Eigen::Map<const RowMajor<Scalar>, 0, Eigen::OuterStride<>> stored(data, turned ? cols : rows,
                                                                           turned ? rows : cols, {pitch});
  return turned ? RowMajor<Scalar>(stored.transpose()) : RowMajor<Scalar>(stored);
}

template <class Scalar>
void add_product(const RowMajor<Scalar>& product, Scalar alpha, Scalar beta, Scalar* C, int pitch) {
  Eigen::Map<RowMajor<Scalar>, 0, Eigen::OuterStride<>> out(C, product.rows(), product.cols(), {pitch});
  out = beta == 0 ? RowMajor<Scalar>(alpha * product) : RowMajor<Scalar>(alpha * product + beta * out);
}

template <class Scalar>
void eigenpairs(int n, Scalar* A, Scalar* values, int* info) {
  Eigen::Map<ColumnMajor<Scalar>> matrix(A, n, n);
  const Eigen::SelfAdjointEigenSolver<ColumnMajor<Scalar>> solver(ColumnMajor<Scalar>(matrix.transpose()));
  *info = solver.info() == Eigen::Success ? 0 : 1;
  Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, 1>>(values, n) = solver.eigenvalues();
  matrix = solver.eigenvectors();
}

template <class Scalar>
void orthogonal_factor(int n, Scalar* A, int* info) {
  Eigen::Map<ColumnMajor<Scalar>> matrix(A, n, n);
  const Eigen::HouseholderQR<ColumnMajor<Scalar>> qr(ColumnMajor<Scalar>(matrix.transpose()));
  matrix = ColumnMajor<Scalar>(qr.householderQ()).transpose();
  *info = 0;
}

}  // namespace

extern "C" {

void openblas_set_num_threads(int /*threads*/) {}
char* openblas_get_config() {
  static char config[] = "Eigen 3.4 ";
  return config;
}
char* openblas_get_corename() {
  static char core[] = "plain";
  return core;
}

void cblas_sgemm(CBLAS_ORDER, CBLAS_TRANSPOSE a, CBLAS_TRANSPOSE b, int m, int n, int k, float alpha, const float* A,
                 int lda, const float* B, int ldb, float beta, float* C, int ldc) {
  add_product<float>(operand(a, m, k, A, lda) * operand(b, k, n, B, ldb), alpha, beta, C, ldc);
}

void cblas_dgemm(CBLAS_ORDER, CBLAS_TRANSPOSE a, CBLAS_TRANSPOSE b, int m, int n, int k, double alpha, const double* A,
                 int lda, const double* B, int ldb, double beta, double* C, int ldc) {
  add_product<double>(operand(a, m, k, A, lda) * operand(b, k, n, B, ldb), alpha, beta, C, ldc);
}

void cblas_ssyrk(CBLAS_ORDER, CBLAS_UPLO, CBLAS_TRANSPOSE a, int n, int k, float alpha, const float* A, int lda,
                 float beta, float* C, int ldc) {
  const RowMajor<float> own = operand(a, n, k, A, lda);
  add_product<float>(own * own.transpose(), alpha, beta, C, ldc);
}

void ssyevd_(const char*, const char*, const int* n, float* A, const int*, float* values, float*, const int*, int*,
             const int*, int* info) {
  eigenpairs(*n, A, values, info);
}

void dsyevd_(const char*, const char*, const int* n, double* A, const int*, double* values, double*, const int*, int*,
             const int*, int* info) {
  eigenpairs(*n, A, values, info);
}

/// Both steps of the orthogonal factor of A = LQ are made in the second.
void sgelqf_(const int*, const int*, float*, const int*, float*, float*, const int*, int* info) { *info = 0; }
void dgelqf_(const int*, const int*, double*, const int*, double*, double*, const int*, int* info) { *info = 0; }

void sorglq_(const int* n, const int*, const int*, float* A, const int*, const float*, float*, const int*, int* info) {
  orthogonal_factor(*n, A, info);
}

void dorglq_(const int* n, const int*, const int*, double* A, const int*, const double*, double*, const int*,
             int* info) {
  orthogonal_factor(*n, A, info);
}

}  // extern "C"
