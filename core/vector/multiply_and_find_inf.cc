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
struct MultiplyAndFind {
  static TANDEM_INLINE void Body(T* x, int64_t count, T factor,
                                 FloatBits<T>* found) {
    const T infinity = std::numeric_limits<T>::infinity();
    FloatBits<T> exponent;
    std::memcpy(&exponent, &infinity, sizeof(exponent));
    FloatBits<T> any = 0;
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
      FloatBits<T> bits;
      std::memcpy(&bits, x + i, sizeof(bits));
      any |= static_cast<FloatBits<T>>((bits & exponent) == exponent);
      x[i] = x[i] * factor;
    }
    *found = any;
  }
};

template <typename T>
bool OnHost(const at::Tensor& part, float factor) {
  static const auto run =
      Choose<MultiplyAndFind<T>, T*, int64_t, T, FloatBits<T>*>();
  T* const all = part.mutable_data_ptr<T>();
  std::atomic<bool> found{false};
  at::parallel_for(
      0, part.numel(), kElementsOfABlock, [&](int64_t begin, int64_t end) {
        FloatBits<T> any = 0;
        run(all + begin, end - begin, static_cast<T>(factor), &any);
        if (any != 0) found = true;
      });
  return found;
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
