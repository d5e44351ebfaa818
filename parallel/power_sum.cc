#include "parallel/power_sum.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <glog/logging.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace tandem {
namespace {

// Two of each at a time, whatever vectors the machine has: so nothing but the
// order written here decides about bits. The compiler makes SSE2 of it.
using Doubles = double __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(8)));

Doubles Load(const double* from) {
  Doubles pair;
  std::memcpy(&pair, from, sizeof(pair));
  return pair;
}

Doubles Load(const float* from) {
  Floats pair;
  std::memcpy(&pair, from, sizeof(pair));
  return __builtin_convertvector(pair, Doubles);
}

// The sum of term(pair of elements), in eight sums side by side.
template <typename T, typename Term>
double Sum(const T* x, int64_t n, Term term) {
  Doubles sums[4] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    sums[0] += term(Load(x + i));
    sums[1] += term(Load(x + i + 2));
    sums[2] += term(Load(x + i + 4));
    sums[3] += term(Load(x + i + 6));
  }
  for (; i < n; ++i) sums[0] += term(Doubles{static_cast<double>(x[i]), 0});
  const Doubles all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return all[0] + all[1];
}

// A NaN is greater than all.
template <typename T>
double Greatest(const T* x, int64_t n) {
  T greatest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T magnitude = std::abs(x[i]);
    if (!(magnitude <= greatest)) greatest = magnitude;
    if (std::isnan(greatest)) break;
  }
  return static_cast<double>(greatest);
}

template <typename T>
double PowerSum(const at::Tensor& tensor, double p) {
  const T* const x = tensor.const_data_ptr<T>();
  const int64_t n = tensor.numel();
  if (std::isinf(p)) return Greatest(x, n);
  if (p == 2) return Sum(x, n, [](Doubles v) { return v * v; });
  if (p == 1) return Sum(x, n, [](Doubles v) { return v < 0 ? -v : v; });
  return Sum(x, n, [p](Doubles v) {
    return Doubles{std::pow(std::abs(v[0]), p), std::pow(std::abs(v[1]), p)};
  });
}

bool HasKernel(const at::Tensor& tensor) {
  return tensor.is_cpu() && (tensor.scalar_type() == at::kFloat ||
                             tensor.scalar_type() == at::kDouble);
}

// One wait for the device, whatever the number of tensors.
std::vector<double> PowerSumsOfLibTorch(const std::vector<at::Tensor>& tensors,
                                        double p) {
  const at::ScalarType dtype =
      tensors[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor norms =
      at::stack(at::_foreach_norm(tensors, p, dtype)).to(at::kCPU, at::kDouble);
  std::vector<double> sums;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const double norm = norms.const_data_ptr<double>()[i];
    sums.push_back(std::isinf(p) ? norm : std::pow(norm, p));
  }
  return sums;
}

}  // namespace

std::vector<double> PowerSums(const std::vector<at::Tensor>& tensors,
                              double p) {
  CHECK_GT(p, 0);
  if (tensors.empty()) return {};
  if (!HasKernel(tensors[0])) return PowerSumsOfLibTorch(tensors, p);
  std::vector<double> sums;
  for (const at::Tensor& tensor : tensors) {
    sums.push_back(tensor.scalar_type() == at::kDouble
                       ? PowerSum<double>(tensor, p)
                       : PowerSum<float>(tensor, p));
  }
  return sums;
}

double NormOfPowerSum(double sum, double p) {
  if (std::isinf(p) || p == 1) return sum;
  return p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
}

}  // namespace tandem
