#include "core/fused/causal_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>

#include "core/fused/attention_heads.h"
#include "core/fused/element.h"
#include "core/fused/exponential.h"
#include "core/fused/find_operator.h"
#include "core/fused/lanes.h"
#include "core/fused/row_major_gemm.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

// Scores of a block's rows to probabilities, zeros where a query must not see.
// Changes the scores.
template <typename T>
struct Softmax {
  static TANDEM_INLINE void Body(T* probabilities, float* log_sums,
                                 float* scores, QueryBlock block,
                                 int64_t stride) {
    for (int64_t row = 0; row < block.rows(); ++row) {
      float* const s = scores + row * stride;
      T* const p = probabilities + row * stride;
      const int64_t seen = block.begin + row + 1;
      const int64_t computed = HideUnseen(s, seen);
      const float greatest = Greatest(s, computed);
      LaneSum lanes;
      for (int64_t i = 0; i < computed; i += kLanes) {
        Lanes e;
        for (int64_t j = 0; j < kLanes; ++j) {
          s[i + j] = Exponential(s[i + j] - greatest);
        }
        LoadLanes(s + i, e);
        lanes.Add(0, e);
      }
      const float sum = lanes.Total();
      log_sums[row] = greatest + std::log(sum);
      const float inverse = 1 / sum;
      for (int64_t i = 0; i < computed; i += kLanes) {
        for (int64_t j = 0; j < kLanes; ++j) {
          p[i + j] = Narrow<T>(s[i + j] * inverse);
        }
      }
      ZeroFrom(computed, block.keys(), p);
    }
  }

 private:
  static TANDEM_INLINE float Greatest(const float* s, int64_t n) {
    float lanes[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = s[j];
    for (int64_t i = kLanes; i < n; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) {
        lanes[j] = s[i + j] > lanes[j] ? s[i + j] : lanes[j];
      }
    }
    float greatest = lanes[0];
    for (const float each : lanes) greatest = each > greatest ? each : greatest;
    return greatest;
  }
};

template <typename T>
void ForwardOfUnits(T* y, float* log_sums, const T* qkv,
                    const AttentionShape& shape, int64_t begin, int64_t end) {
  static const auto softmax =
      Choose<Softmax<T>, T*, float*, float*, QueryBlock, int64_t>();
  static const auto narrow =
      Choose<NarrowRows<T>, T*, int64_t, const float*, int64_t, int64_t>();
  const OneThreadedGemm one_thread;
  const Scratch<float> scores(kQueriesOfBlock * shape.stride());
  const Scratch<T> probabilities(kQueriesOfBlock * shape.stride());
  const Scratch<float> result(kQueriesOfBlock * shape.size);
  for (int64_t unit = begin; unit < end; ++unit) {
    const HeadOfQkv<const T> head(qkv, shape, unit);
    T* const out = HeadOfResult(y, shape, unit);
    ForQueryBlocks(shape.tokens, [&](const QueryBlock& block) {
      HeadScores<T>(head, shape, block, scores.data());
      softmax(probabilities.data(),
              log_sums + unit * shape.tokens + block.begin, scores.data(),
              block, shape.stride());
      Gemm<T>({block.rows(), block.keys(), shape.size}, /*alpha=*/1,
              {probabilities.data(), shape.stride()}, {head.v, head.stride},
              /*beta=*/0, result.data(), shape.size);
      narrow(out + block.begin * shape.width(), shape.width(), result.data(),
             block.rows(), shape.size);
    });
  }
}

std::tuple<at::Tensor, at::Tensor> ForwardOnCpu(const at::Tensor& qkv,
                                                int64_t heads) {
  const AttentionShape shape = CheckAttention(qkv, heads);
  const at::Tensor in = qkv.contiguous();
  const at::Tensor y =
      at::empty({shape.batch, shape.tokens, shape.width()}, in.options());
  const at::Tensor log_sums = at::empty({shape.batch, heads, shape.tokens},
                                        in.options().dtype(at::kFloat));
  WithElementType("causal_attention", in.scalar_type(), [&](auto element) {
    using T = decltype(element);
    auto* to = y.mutable_data_ptr<T>();
    auto* sums = log_sums.mutable_data_ptr<float>();
    const auto* from = in.const_data_ptr<T>();
    at::parallel_for(0, shape.units(), 1, [&](int64_t begin, int64_t end) {
      ForwardOfUnits<T>(to, sums, from, shape, begin, end);
    });
  });
  return {y, log_sums};
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("causal_attention(Tensor qkv, int heads) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("causal_attention", ForwardOnCpu);
}

}  // namespace

bool HasCausalAttention(at::ScalarType dtype) { return HasGemm(dtype); }

std::tuple<at::Tensor, at::Tensor> CausalAttention(const at::Tensor& qkv,
                                                   int64_t heads) {
  static const auto op =
      FindOperator<decltype(ForwardOnCpu)>("tandem::causal_attention");
  return op.call(qkv, heads);
}

}  // namespace tandem
