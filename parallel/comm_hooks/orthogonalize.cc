#include "parallel/comm_hooks/orthogonalize.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/stack.h>
#include <glog/logging.h>

#include <cmath>
#include <cstdint>
#include <vector>

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

// Makes rows in the host's memory orthonormal. Returns the lengths of what was
// left of them.
at::Tensor MakeRowsOrthonormal(const at::Tensor& rows) {
  const at::Tensor lengths = at::empty({rows.size(0)}, at::kDouble);
  for (int64_t k = 0; k < rows.size(0); ++k) {
    lengths.mutable_data_ptr<double>()[k] =
        MakeOrthonormal(rows.mutable_data_ptr<double>(), k, rows.size(1));
  }
  return lengths;
}

// The same by operators, which leave to the device what is zero. A pass
// projects on all rows before at once: the second one makes up for that.
at::Tensor MakeRowsOrthonormalOnDevice(const at::Tensor& rows) {
  std::vector<at::Tensor> lengths;
  for (int64_t k = 0; k < rows.size(0); ++k) {
    const at::Tensor mine = rows.select(0, k);
    const at::Tensor others = rows.narrow(0, 0, k);
    const at::Tensor before = mine.norm();
    for (int pass = 0; pass < 2 && k > 0; ++pass) {
      mine.sub_(at::mv(others.t(), at::mv(others, mine)));
    }
    const at::Tensor left = mine.norm();
    const at::Tensor is_zero =
        k == 0 ? left.eq(0) : left.le(before * kDependent);
    lengths.push_back(left.masked_fill(is_zero, 0));
    mine.div_(left.masked_fill(is_zero, 1)).masked_fill_(is_zero, 0);
  }
  return at::stack(lengths);
}

}  // namespace

at::Tensor Orthogonalize(const at::Tensor& matrix, double epsilon) {
  at::NoGradGuard no_grad;
  CHECK_EQ(matrix.dim(), 2);
  const at::Tensor rows =
      matrix.to(at::kDouble).t().clone(at::MemoryFormat::Contiguous);
  const at::Tensor lengths = rows.is_cpu() ? MakeRowsOrthonormal(rows)
                                           : MakeRowsOrthonormalOnDevice(rows);
  if (epsilon != 0) {
    rows.mul_((lengths / (lengths + epsilon)).unsqueeze(1));
  }
  matrix.copy_(rows.t());
  return lengths.eq(0);
}

}  // namespace tandem
