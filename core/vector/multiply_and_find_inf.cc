#include "core/vector/multiply_and_find_inf.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/device/host_memory.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

// What is worth a thread of its own.
constexpr int64_t kElementsOfABlock = 32768;

template <typename T>
using FloatBits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// Infinities and NaNs are the numbers whose exponent is all ones: a comparison
// of integers, which vectors of every instruction set have.
template <typename T>
struct Exponent {
  Exponent() {
    const T infinity = std::numeric_limits<T>::infinity();
    std::memcpy(&all_ones, &infinity, sizeof(all_ones));
  }

  TANDEM_INLINE FloatBits<T> IsAllOnes(const T& number) const {
    FloatBits<T> bits;
    std::memcpy(&bits, &number, sizeof(bits));
    return static_cast<FloatBits<T>>((bits & all_ones) == all_ones);
  }

  FloatBits<T> all_ones;
};

template <typename T>
struct MultiplyAndFind {
  static TANDEM_INLINE void Body(T* x, int64_t count, T factor,
                                 FloatBits<T>* found) {
    const Exponent<T> exponent;
    FloatBits<T> any = 0;
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
      any |= exponent.IsAllOnes(x[i]);
      x[i] = x[i] * factor;
    }
    *found = any;
  }
};

template <typename T>
struct Find {
  static TANDEM_INLINE void Body(const T* x, int64_t count,
                                 FloatBits<T>* found) {
    const Exponent<T> exponent;
    FloatBits<T> any = 0;
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) any |= exponent.IsAllOnes(x[i]);
    *found = any;
  }
};

// Whether look(begin, length, &any) finds one in any block of `count` elements.
template <typename T, typename Look>
bool InAnyBlock(int64_t count, const Look& look) {
  std::atomic<bool> found{false};
  at::parallel_for(0, count, kElementsOfABlock,
                   [&](int64_t begin, int64_t end) {
                     FloatBits<T> any = 0;
                     look(begin, end - begin, &any);
                     if (any != 0) found = true;
                   });
  return found;
}

template <typename T>
bool OnHost(const at::Tensor& part, float factor) {
  static const auto multiply =
      Choose<MultiplyAndFind<T>, T*, int64_t, T, FloatBits<T>*>();
  static const auto find = Choose<Find<T>, const T*, int64_t, FloatBits<T>*>();
  if (factor == 1) {
    const T* const all = part.const_data_ptr<T>();
    return InAnyBlock<T>(part.numel(),
                         [&](int64_t begin, int64_t count, FloatBits<T>* any) {
                           find(all + begin, count, any);
                         });
  }
  T* const all = part.mutable_data_ptr<T>();
  return InAnyBlock<T>(
      part.numel(), [&](int64_t begin, int64_t count, FloatBits<T>* any) {
        multiply(all + begin, count, static_cast<T>(factor), any);
      });
}

bool ByLibTorch(const std::vector<at::Tensor>& parts, float factor) {
  const at::TensorOptions options = parts.front().options().dtype(at::kFloat);
  at::Tensor found = at::zeros({}, options);
  at::_amp_foreach_non_finite_check_and_unscale_(parts, found,
                                                 at::full({}, factor, options));
  return found.item<float>() != 0;
}

}  // namespace

bool MultiplyAndFindInf(const std::vector<at::Tensor>& parts, float factor) {
  bool found = false;
  std::vector<at::Tensor> others;
  for (const at::Tensor& part : parts) {
    const at::Tensor host = HostView(part);
    const bool is_host = host.defined();
    if (is_host && host.is_meta()) continue;  // no values
    if (is_host && host.scalar_type() == at::kFloat) {
      found |= OnHost<float>(host, factor);
    } else if (is_host && host.scalar_type() == at::kDouble) {
      found |= OnHost<double>(host, factor);
    } else {
      others.push_back(is_host ? host : part);
    }
  }
  return (!others.empty() && ByLibTorch(others, factor)) || found;
}

}  // namespace tandem
