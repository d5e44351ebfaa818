// What the two passes of causal attention share: where a head's matrices lie.

#ifndef TANDEM_CORE_FUSED_ATTENTION_HEADS_H_
#define TANDEM_CORE_FUSED_ATTENTION_HEADS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/fused/element.h"
#include "core/fused/lanes.h"
#include "core/fused/row_major_gemm.h"
#include "core/vector/dispatch.h"

namespace tandem {

// Queries of a block see the keys up to its end. So few that their scores stay
// in the cache, and that little is computed of what no query sees.
constexpr int64_t kQueriesOfBlock = 64;

// A thread's own memory: LibTorch's, which begins on 64 bytes. Products' bits
// depend on that.
template <typename T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : memory_(c10::GetCPUAllocator()->allocate(count * sizeof(T))) {}
  T* data() const { return static_cast<T*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

struct AttentionShape {
  int64_t batch, tokens, heads, size;  // size: of a head

  int64_t width() const { return heads * size; }
  // None without tokens: there is no memory, then, that one could point into.
  int64_t units() const { return tokens == 0 ? 0 : batch * heads; }
  // From one query's scores to the next one's, which begin on 64 bytes too.
  int64_t stride() const { return (tokens + kLanes - 1) / kLanes * kLanes; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(size)); }
};

inline AttentionShape CheckAttention(const at::Tensor& qkv, int64_t heads) {
  TORCH_CHECK(qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0 &&
                  qkv.size(2) > 0,
              "causal_attention of ", heads,
              " heads takes [samples, tokens, 3 * ", heads, " * size], but ",
              qkv.sizes(), " was given");
  return {qkv.size(0), qkv.size(1), heads, qkv.size(2) / (3 * heads)};
}

// A head of a sample in qkv, or in its gradient.
template <typename T>
struct HeadOfQkv {
  HeadOfQkv(T* qkv, const AttentionShape& shape, int64_t unit)
      : stride(3 * shape.width()) {
    T* const sample = qkv + unit / shape.heads * shape.tokens * stride;
    q = sample + unit % shape.heads * shape.size;
    k = q + shape.width();
    v = k + shape.width();
  }

  int64_t stride;
  T *q, *k, *v;
};

// In the result, or in its gradient.
template <typename T>
T* HeadOfResult(T* y, const AttentionShape& shape, int64_t unit) {
  return y + unit / shape.heads * shape.tokens * shape.width() +
         unit % shape.heads * shape.size;
}

struct QueryBlock {
  int64_t begin, end;

  int64_t rows() const { return end - begin; }
  int64_t keys() const { return end; }
};

template <typename Body>
void ForQueryBlocks(int64_t tokens, const Body& body) {
  for (int64_t begin = 0; begin < tokens; begin += kQueriesOfBlock) {
    body(QueryBlock{begin, std::min(begin + kQueriesOfBlock, tokens)});
  }
}

// A query sees the first `seen` of its scores: those up to the next multiple of
// kLanes, whose number it gives, become what has the probability 0, so that
// loops need no remainder.
TANDEM_INLINE int64_t HideUnseen(float* scores, int64_t seen) {
  const int64_t computed = (seen + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = seen; i < computed; ++i) {
    scores[i] = -std::numeric_limits<float>::infinity();
  }
  return computed;
}

template <typename T>
TANDEM_INLINE void ZeroFrom(int64_t begin, int64_t end, T* row) {
  for (int64_t i = begin; i < end; ++i) row[i] = Narrow<T>(0);
}

// Rows of floats, one after the other, to rows `stride` apart.
template <typename T>
struct NarrowRows {
  static TANDEM_INLINE void Body(T* to, int64_t stride, const float* from,
                                 int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < columns; ++i) {
        to[row * stride + i] = Narrow<T>(from[row * columns + i]);
      }
    }
  }
};

// q k^T / sqrt(d) of the block, to `scores`.
template <typename T>
void HeadScores(const HeadOfQkv<const T>& head, const AttentionShape& shape,
                const QueryBlock& block, float* scores) {
  Gemm<T>({block.rows(), shape.size, block.keys()}, shape.scale(),
          {head.q + block.begin * head.stride, head.stride},
          {head.k, head.stride, /*is_transposed=*/true}, /*beta=*/0, scores,
          shape.stride());
}

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_ATTENTION_HEADS_H_
