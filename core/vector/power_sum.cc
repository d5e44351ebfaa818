#include "core/vector/power_sum.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <glog/logging.h>

#include <cmath>
#include <cstring>

#include "core/device/host_memory.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

// Sums run side by side: element i goes to lane i % kLanes, whatever vectors
// the machine has, so that nothing but the order written here decides on bits.
constexpr int kLanes = 16;

// Adds |x|^kPower of the first elements, as many as are a multiple of kLanes.
template <typename T, int kPower>
struct AddToLanes {
  static TANDEM_INLINE void Body(const T* x, int64_t n, double* lanes) {
    using Doubles = double __attribute__((vector_size(4 * sizeof(double))));
    typedef T Elements __attribute__((vector_size(4 * sizeof(T))));
    Doubles sums[kLanes / 4] = {};
    for (int64_t i = 0; i + kLanes <= n; i += kLanes) {
      TANDEM_UNROLL_4
      for (int k = 0; k < kLanes / 4; ++k) {
        Elements four;
        std::memcpy(&four, x + i + 4 * k, sizeof(four));
        const Doubles wide = __builtin_convertvector(four, Doubles);
        if constexpr (kPower == 2) {
          sums[k] += wide * wide;
        } else {
          sums[k] += wide < 0 ? -wide : wide;
        }
      }
    }
    std::memcpy(lanes, sums, sizeof(sums));
  }
};

template <typename T, typename Term>
double Total(const T* x, int64_t n, Term term, const double* lanes) {
  double sum = 0;
  for (int k = 0; k < kLanes; ++k) sum += lanes[k];
  for (int64_t i = n / kLanes * kLanes; i < n; ++i) {
    sum += term(static_cast<double>(x[i]));
  }
  return sum;
}

template <typename T, int kPower, typename Term>
double VectorSum(const T* x, int64_t n, Term term) {
  static const auto run =
      Choose<AddToLanes<T, kPower>, const T*, int64_t, double*>();
  double lanes[kLanes];
  run(x, n, lanes);
  return Total(x, n, term, lanes);
}

template <typename T, typename Term>
double Sum(const T* x, int64_t n, Term term) {
  double lanes[kLanes] = {};
  for (int64_t i = 0; i < n / kLanes * kLanes; ++i) {
    lanes[i % kLanes] += term(static_cast<double>(x[i]));
  }
  return Total(x, n, term, lanes);
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
  if (p == 2) return VectorSum<T, 2>(x, n, [](double v) { return v * v; });
  if (p == 1) {
    return VectorSum<T, 1>(x, n, [](double v) { return std::abs(v); });
  }
  return Sum(x, n, [p](double v) { return std::pow(std::abs(v), p); });
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

std::vector<at::Tensor> PartsOf(const at::Tensor& flat,
                                const std::vector<ElementRange>& ranges) {
  std::vector<at::Tensor> parts;
  for (const ElementRange& range : ranges) {
    parts.push_back(flat.narrow(0, range.offset, range.numel));
  }
  return parts;
}

// One wait for the device, whatever the number of ranges.
std::vector<double> PowerSumsOfLibTorch(const at::Tensor& flat,
                                        const std::vector<ElementRange>& ranges,
                                        double p) {
  const std::vector<at::Tensor> parts = PartsOf(flat, ranges);
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
  if (host.defined() && host.is_meta()) {
    return std::vector<double>(ranges.size(), 0);
  }
  if (host.defined() && host.scalar_type() == at::kFloat) {
    return PowerSumsOf(host.const_data_ptr<float>(), ranges, p);
  }
  if (host.defined() && host.scalar_type() == at::kDouble) {
    return PowerSumsOf(host.const_data_ptr<double>(), ranges, p);
  }
  return PowerSumsOfLibTorch(flat, ranges, p);
}

at::Tensor SquareSums(const at::Tensor& flat,
                      const std::vector<ElementRange>& ranges) {
  CHECK(!ranges.empty());
  const at::NoGradGuard no_grad;
  if (flat.is_cpu()) return at::tensor(PowerSums(flat, ranges, 2), at::kDouble);
  return at::stack(at::_foreach_norm(PartsOf(flat, ranges), 2, at::kDouble))
      .square_();
}

double NormOfPowerSum(double sum, double p) {
  if (std::isinf(p) || p == 1) return sum;
  return p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
}

}  // namespace tandem
