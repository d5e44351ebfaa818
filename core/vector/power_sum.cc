#include "core/vector/power_sum.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <glog/logging.h>

#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/device/host_memory.h"

namespace tandem {
namespace {

// Sums run side by side: element i goes to lane i % kLanes, whatever vectors
// the machine has, so that nothing but the order written here decides on bits.
constexpr int kLanes = 16;

// Two doubles: what every x86-64 machine has.
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

// Adds term(x) of the first elements, as many as are a multiple of kLanes.
template <typename T, typename Term>
void AddToLanes(const T* x, int64_t n, Term term, double* lanes) {
  Doubles sums[kLanes / 2] = {};
  for (int64_t i = 0; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 8
    for (int k = 0; k < kLanes / 2; ++k) sums[k] += term(Load(x + i + 2 * k));
  }
  std::memcpy(lanes, sums, sizeof(sums));
}

#if defined(__x86_64__)
// The same for squares, in less time. (No fused multiply-add: it rounds once
// where the code above rounds twice.)
__attribute__((target("avx2"))) void AddSquaresToLanesAvx2(const float* x,
                                                           int64_t n,
                                                           double* lanes) {
  using Doubles4 = double __attribute__((vector_size(32)));
  using Floats4 = float __attribute__((vector_size(16)));
  Doubles4 sums[kLanes / 4] = {};
  for (int64_t i = 0; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 4
    for (int k = 0; k < kLanes / 4; ++k) {
      Floats4 four;
      std::memcpy(&four, x + i + 4 * k, sizeof(four));
      const Doubles4 wide = __builtin_convertvector(four, Doubles4);
      sums[k] += wide * wide;
    }
  }
  std::memcpy(lanes, sums, sizeof(sums));
}

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#endif

template <typename T, typename Term>
double Total(const T* x, int64_t n, Term term, const double* lanes) {
  double sum = 0;
  for (int k = 0; k < kLanes; ++k) sum += lanes[k];
  for (int64_t i = n / kLanes * kLanes; i < n; ++i) {
    sum += term(Doubles{static_cast<double>(x[i]), 0})[0];
  }
  return sum;
}

template <typename T, typename Term>
double Sum(const T* x, int64_t n, Term term) {
  double lanes[kLanes];
  AddToLanes(x, n, term, lanes);
  return Total(x, n, term, lanes);
}

template <typename T>
double SumOfSquares(const T* x, int64_t n) {
  const auto square = [](Doubles v) { return v * v; };
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, float>) {
    if (HasAvx2()) {
      double lanes[kLanes];
      AddSquaresToLanesAvx2(x, n, lanes);
      return Total(x, n, square, lanes);
    }
  }
#endif
  return Sum(x, n, square);
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
double PowerSum(const T* x, int64_t n, double p) {
  if (std::isinf(p)) return Greatest(x, n);
  if (p == 2) return SumOfSquares(x, n);
  if (p == 1) return Sum(x, n, [](Doubles v) { return v < 0 ? -v : v; });
  return Sum(x, n, [p](Doubles v) {
    return Doubles{std::pow(std::abs(v[0]), p), std::pow(std::abs(v[1]), p)};
  });
}

template <typename T>
std::vector<double> PowerSumsOf(const T* x,
                                const std::vector<ElementRange>& ranges,
                                double p) {
  std::vector<double> sums;
  for (const ElementRange& range : ranges) {
    sums.push_back(PowerSum(x + range.offset, range.numel, p));
  }
  return sums;
}

// One wait for the device, whatever the number of ranges.
std::vector<double> PowerSumsOfLibTorch(const at::Tensor& flat,
                                        const std::vector<ElementRange>& ranges,
                                        double p) {
  std::vector<at::Tensor> parts;
  for (const ElementRange& range : ranges) {
    parts.push_back(flat.narrow(0, range.offset, range.numel));
  }
  const at::ScalarType dtype =
      flat.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor norms =
      at::stack(at::_foreach_norm(parts, p, dtype)).to(at::kCPU, at::kDouble);
  std::vector<double> sums;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double norm = norms.const_data_ptr<double>()[i];
    sums.push_back(std::isinf(p) ? norm : std::pow(norm, p));
  }
  return sums;
}

}  // namespace

std::vector<double> PowerSums(const at::Tensor& flat,
                              const std::vector<ElementRange>& ranges,
                              double p) {
  CHECK_GT(p, 0);
  if (ranges.empty()) return {};
  const at::Tensor host = HostView(flat);
  if (host.defined() && host.scalar_type() == at::kFloat) {
    return PowerSumsOf(host.const_data_ptr<float>(), ranges, p);
  }
  if (host.defined() && host.scalar_type() == at::kDouble) {
    return PowerSumsOf(host.const_data_ptr<double>(), ranges, p);
  }
  return PowerSumsOfLibTorch(flat, ranges, p);
}

double NormOfPowerSum(double sum, double p) {
  if (std::isinf(p) || p == 1) return sum;
  return p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
}

}  // namespace tandem
