#include "core/vector/power_sum.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

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

constexpr double kMost = std::numeric_limits<double>::max();

// The norm of elements, or parts, of which the greatest is given: they are
// taken as parts of it, so that no power overflows, nor all of them vanish.
// `sum_of` sums a function of each.
template <typename SumFunction>
double NormByGreatest(double greatest, double p, SumFunction sum_of) {
  if (greatest == 0 || std::isinf(p) || !std::isfinite(greatest)) {
    return greatest;
  }
  const double sum = sum_of(
      [greatest, p](double v) { return std::pow(std::abs(v) / greatest, p); });
  // By logarithms, for the root alone may be more than a double holds.
  const double root = std::pow(sum, 1 / p);
  const double norm = std::isinf(root)
                          ? std::exp(std::log(greatest) + std::log(sum) / p)
                          : greatest * root;
  return std::min(norm, kMost);
}

template <typename T>
double PowerSum(const T* x, int64_t n, double p) {
  if (p == 2) return VectorSum<T, 2>(x, n, [](double v) { return v * v; });
  if (p == 1) {
    return VectorSum<T, 1>(x, n, [](double v) { return std::abs(v); });
  }
  return NormByGreatest(Greatest(x, n), p,
                        [&](const auto& term) { return Sum(x, n, term); });
}

template <typename T>
std::vector<double> ChunkPowerSums(const T* x,
                                   const std::vector<ElementRange>& ranges,
                                   double p) {
  std::vector<double> sums;
  for (const ElementRange& range : ranges) {
    sums.push_back(PowerSum(x + range.offset, range.numel, p));
  }
  return sums;
}

std::vector<at::Tensor> CutParts(const at::Tensor& flat,
                                 const std::vector<ElementRange>& ranges) {
  std::vector<at::Tensor> parts;
  for (const ElementRange& range : ranges) {
    parts.push_back(flat.narrow(0, range.offset, range.numel));
  }
  return parts;
}

// One wait for the device, whatever the number of norms.
std::vector<double> Read(const std::vector<at::Tensor>& norms) {
  const at::Tensor all = at::stack(norms).cpu();
  const auto* const first = all.const_data_ptr<double>();
  return {first, first + norms.size()};
}

// NormByGreatest of each part, which is copied as doubles.
std::vector<double> NormsByGreatest(const std::vector<at::Tensor>& parts,
                                    double p) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> norms =
      Read(at::_foreach_norm(parts, infinity, at::kDouble));
  std::vector<at::Tensor> of_quotients;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool divides = norms[i] > 0 && std::isfinite(norms[i]);
    of_quotients.push_back(at::linalg_vector_norm(
        parts[i].to(at::kDouble).div(divides ? norms[i] : 1), p));
  }
  const std::vector<double> factors = Read(of_quotients);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (norms[i] > 0 && std::isfinite(norms[i])) {
      norms[i] = std::min(norms[i] * factors[i], kMost);
    }
  }
  return norms;
}

std::vector<double> PowerSumsOfLibTorch(const at::Tensor& flat,
                                        const std::vector<ElementRange>& ranges,
                                        double p) {
  const std::vector<at::Tensor> parts = CutParts(flat, ranges);
  if (p != 1 && p != 2 && !std::isinf(p)) return NormsByGreatest(parts, p);
  std::vector<double> sums = Read(at::_foreach_norm(parts, p, at::kDouble));
  for (double& each : sums) each = p == 2 ? each * each : each;
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
    return ChunkPowerSums(host.const_data_ptr<float>(), ranges, p);
  }
  if (host.defined() && host.scalar_type() == at::kDouble) {
    return ChunkPowerSums(host.const_data_ptr<double>(), ranges, p);
  }
  return PowerSumsOfLibTorch(flat, ranges, p);
}

at::Tensor SquareSums(const at::Tensor& flat,
                      const std::vector<ElementRange>& ranges) {
  CHECK(!ranges.empty());
  const at::NoGradGuard no_grad;
  if (flat.is_cpu()) return at::tensor(PowerSums(flat, ranges, 2), at::kDouble);
  return at::stack(at::_foreach_norm(CutParts(flat, ranges), 2, at::kDouble))
      .square_();
}

double NormOfPowerSums(const std::vector<double>& sums, double p) {
  const auto sum_of = [&](const auto& term) {
    double all = 0;
    for (const double sum : sums) all += term(sum);
    return all;
  };
  if (p == 1 || p == 2) {
    const double all = sum_of([](double sum) { return sum; });
    return p == 1 ? all : std::sqrt(all);
  }
  const double norm = NormByGreatest(
      Greatest(sums.data(), static_cast<int64_t>(sums.size())), p, sum_of);
  return norm == kMost ? std::numeric_limits<double>::infinity() : norm;
}

bool NormOverflows(const std::vector<double>& sums, double p) {
  return std::isinf(NormOfPowerSums(sums, p)) &&
         std::all_of(sums.begin(), sums.end(),
                     [](double sum) { return std::isfinite(sum); });
}

}  // namespace tandem
