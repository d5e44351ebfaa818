#include "parallel/comm_hooks/orthogonalize.h"

#include <ATen/core/grad_mode.h>
#include <glog/logging.h>

#include <cmath>

namespace tandem {
namespace {

// What is left of a column that depends on others, relative to its norm: a few
// rounding errors of double. Those of float are far above it and count as a
// direction, which costs nothing: the gradient has next to nothing along it.
constexpr double kDependent = 1e-13;

// Four sums, so that one addition need not wait for the last.
double Dot(const double* a, const double* b, int64_t n) {
  double sums[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int lane = 0; lane < 4; ++lane) {
      sums[lane] += a[i + lane] * b[i + lane];
    }
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void Scale(double factor, double* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] *= factor;
}

// a -= factor * b
void Subtract(double factor, const double* b, double* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] -= factor * b[i];
}

// Makes vector `k` of `vectors`, each of n, a unit vector orthogonal to those
// before it. Returns the length of what was left of it; 0: nothing.
double MakeOrthonormal(double* vectors, int64_t k, int64_t n) {
  double* const mine = vectors + k * n;
  const double before = std::sqrt(Dot(mine, mine, n));
  double left = before;
  for (int pass = 0; pass < 2 && k > 0; ++pass) {
    for (int64_t j = 0; j < k; ++j) {
      const double* const other = vectors + j * n;
      Subtract(Dot(other, mine, n), other, mine, n);
    }
    left = std::sqrt(Dot(mine, mine, n));
    // Not for NaNs.
    if (left <= kDependent * before) left = 0;
  }
  Scale(left == 0 ? 0 : 1 / left, mine, n);
  return left;
}

}  // namespace

int64_t Orthogonalize(const at::Tensor& matrix, double epsilon) {
  at::NoGradGuard no_grad;
  CHECK_EQ(matrix.dim(), 2);
  const int64_t n = matrix.size(0);
  const int64_t count = matrix.size(1);
  const at::Tensor columns =
      matrix.to(at::kCPU, at::kDouble).t().clone(at::MemoryFormat::Contiguous);
  double* const vectors = columns.mutable_data_ptr<double>();
  std::vector<double> lengths;
  for (int64_t k = 0; k < count; ++k) {
    lengths.push_back(MakeOrthonormal(vectors, k, n));
  }
  int64_t dependent = 0;
  for (int64_t k = 0; k < count; ++k) {
    if (lengths[k] == 0) ++dependent;
    if (epsilon == 0) continue;
    Scale(lengths[k] / (lengths[k] + epsilon), vectors + k * n, n);
  }
  matrix.copy_(columns.t());
  return dependent;
}

}  // namespace tandem
