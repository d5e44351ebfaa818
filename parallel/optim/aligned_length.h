// Aligned length: where the next slice of a flat buffer may begin.

#ifndef TANDEM_PARALLEL_OPTIM_ALIGNED_LENGTH_H_
#define TANDEM_PARALLEL_OPTIM_ALIGNED_LENGTH_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "core/base/round_up.h"

namespace tandem {

// In bytes: a cache line, a vector of AVX-512.
inline constexpr int64_t kAlignment = 64;

// `elements` of the dtype of `like`, rounded up so that what comes behind them
// begins on kAlignment if they do.
inline int64_t AlignedLength(int64_t elements, const at::Tensor& like) {
  const auto bytes = static_cast<int64_t>(like.element_size());
  return RoundUp(elements, std::max<int64_t>(1, kAlignment / bytes));
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_ALIGNED_LENGTH_H_
