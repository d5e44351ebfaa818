#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>

#include "core/fused/attention_heads.h"
#include "core/fused/causal_attention.h"
#include "core/fused/element.h"
#include "core/fused/exponential.h"
#include "core/fused/find_operator.h"
#include "core/fused/lanes.h"
#include "core/fused/row_major_gemm.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

// The sum of dy * y over each row.
template <typename T>
struct RowProducts {
  static TANDEM_INLINE void Body(float* products, const T* dy, const T* y,
                                 AttentionShape shape) {
    for (int64_t row = 0; row < shape.tokens; ++row) {
      const T* const a = dy + row * shape.width();
      const T* const b = y + row * shape.width();
      LaneSum sum;
      int64_t i = 0;
      for (; i + kLanes <= shape.size; i += kLanes) {
        Lanes left, right;
        LoadLanes(a + i, left);
        LoadLanes(b + i, right);
        sum.Add(0, left * right);
      }
      for (; i < shape.size; ++i) {
        sum.AddOne(i % kLanes, Widen(a[i]) * Widen(b[i]));
      }
      products[row] = sum.Total();
    }
  }
};

// Where scores and the gradients of probabilities become probabilities and
// gradients of scores.
template <typename T>
struct Block {
  T* probabilities;
  T* dscores;
  float* scores;  // changed
  const float* dprobabilities;
  const float* log_sums;  // of its rows
  const float* products;
};

template <typename T>
struct SoftmaxBackward {
  static TANDEM_INLINE void Body(Block<T> of, QueryBlock block, int64_t stride,
                                 float scale) {
    for (int64_t row = 0; row < block.rows(); ++row) {
      float* const s = of.scores + row * stride;
      const float* const dp = of.dprobabilities + row * stride;
      T* const p = of.probabilities + row * stride;
      T* const ds = of.dscores + row * stride;
      const int64_t seen = block.begin + row + 1;
      const int64_t computed = HideUnseen(s, seen);
      const float log_sum = of.log_sums[row];
      const float product = of.products[row];
      for (int64_t i = 0; i < computed; i += kLanes) {
        for (int64_t j = i; j < i + kLanes; ++j) {
          s[j] = Exponential(s[j] - log_sum);
        }
        for (int64_t j = i; j < i + kLanes; ++j) p[j] = Narrow<T>(s[j]);
        for (int64_t j = i; j < i + kLanes; ++j) {
          ds[j] = Narrow<T>(s[j] * (dp[j] - product) * scale);
        }
      }
      ZeroFrom(computed, block.keys(), p);
      ZeroFrom(seen, block.keys(), ds);  // where dp may be NaN
    }
  }
};

// One thread's.
template <typename T>
class Backward {
 public:
  explicit Backward(const AttentionShape& shape)
      : shape_(shape),
        scores_(kQueriesOfBlock * shape.stride()),
        dprobabilities_(kQueriesOfBlock * shape.stride()),
        probabilities_(kQueriesOfBlock * shape.stride()),
        dscores_(kQueriesOfBlock * shape.stride()),
        products_(shape.tokens),
        dq_(kQueriesOfBlock * shape.size),
        dk_(shape.tokens * shape.size),
        dv_(shape.tokens * shape.size) {}

  void Unit(T* dqkv, const T* dy, const T* qkv, const T* y,
            const float* log_sums, int64_t unit) {
    static const auto row_products =
        Choose<RowProducts<T>, float*, const T*, const T*, AttentionShape>();
    const HeadOfQkv<const T> head(qkv, shape_, unit);
    const HeadOfQkv<T> dhead(dqkv, shape_, unit);
    const T* const its_dy = HeadOfResult(dy, shape_, unit);
    row_products(products_.data(), its_dy, HeadOfResult(y, shape_, unit),
                 shape_);
    std::fill_n(dk_.data(), shape_.tokens * shape_.size, 0.0f);
    std::fill_n(dv_.data(), shape_.tokens * shape_.size, 0.0f);
    ForQueryBlocks(shape_.tokens, [&](const QueryBlock& block) {
      OfBlock(head, dhead, its_dy, log_sums + unit * shape_.tokens, block);
    });
    Write(dhead.k, dhead.stride, dk_, shape_.tokens);
    Write(dhead.v, dhead.stride, dv_, shape_.tokens);
  }

 private:
  void OfBlock(const HeadOfQkv<const T>& head, const HeadOfQkv<T>& dhead,
               const T* dy, const float* log_sums, const QueryBlock& block) {
    static const auto softmax_backward =
        Choose<SoftmaxBackward<T>, Block<T>, QueryBlock, int64_t, float>();
    const int64_t stride = shape_.stride();
    const GemmOperand<T> dy_of_block = {dy + block.begin * shape_.width(),
                                        shape_.width()};
    HeadScores<T>(head, shape_, block, scores_.data());
    Gemm<T>({block.rows(), shape_.size, block.keys()}, /*alpha=*/1, dy_of_block,
            {head.v, head.stride, /*is_transposed=*/true}, /*beta=*/0,
            dprobabilities_.data(), stride);
    softmax_backward({probabilities_.data(), dscores_.data(), scores_.data(),
                      dprobabilities_.data(), log_sums + block.begin,
                      products_.data() + block.begin},
                     block, stride, shape_.scale());
    Add(probabilities_, dy_of_block, block, &dv_);
    Add(dscores_, {head.q + block.begin * head.stride, head.stride}, block,
        &dk_);
    Gemm<T>({block.rows(), block.keys(), shape_.size}, /*alpha=*/1,
            {dscores_.data(), stride}, {head.k, head.stride}, /*beta=*/0,
            dq_.data(), shape_.size);
    Write(dhead.q + block.begin * dhead.stride, dhead.stride, dq_,
          block.rows());
  }

  // Adds weights^T b: to keys, what queries give them.
  void Add(const Scratch<T>& weights, const GemmOperand<T>& b,
           const QueryBlock& block, Scratch<float>* sum) {
    Gemm<T>({block.keys(), block.rows(), shape_.size}, /*alpha=*/1,
            {weights.data(), shape_.stride(), /*is_transposed=*/true}, b,
            /*beta=*/1, sum->data(), shape_.size);
  }

  void Write(T* to, int64_t stride, const Scratch<float>& from,
             int64_t rows) const {
    static const auto narrow =
        Choose<NarrowRows<T>, T*, int64_t, const float*, int64_t, int64_t>();
    narrow(to, stride, from.data(), rows, shape_.size);
  }

  const AttentionShape shape_;
  Scratch<float> scores_, dprobabilities_;
  Scratch<T> probabilities_, dscores_;
  Scratch<float> products_, dq_, dk_, dv_;
};

at::Tensor BackwardOnCpu(const at::Tensor& dy, const at::Tensor& qkv,
                         const at::Tensor& y, const at::Tensor& log_sums,
                         int64_t heads) {
  const AttentionShape shape = CheckAttention(qkv, heads);
  TORCH_CHECK(dy.sizes() == y.sizes() && dy.scalar_type() == y.scalar_type(),
              "causal_attention_backward of ", dy.scalar_type(), dy.sizes(),
              ": the result is ", y.scalar_type(), y.sizes());
  const at::Tensor in = qkv.contiguous();
  const at::Tensor gradient = dy.contiguous();
  const at::Tensor dqkv = at::empty_like(in);
  WithElementType("causal_attention", in.scalar_type(), [&](auto element) {
    using T = decltype(element);
    auto* to = dqkv.mutable_data_ptr<T>();
    at::parallel_for(0, shape.units(), 1, [&](int64_t begin, int64_t end) {
      const OneThreadedGemm one_thread;
      Backward<T> backward(shape);
      for (int64_t unit = begin; unit < end; ++unit) {
        backward.Unit(to, gradient.const_data_ptr<T>(), in.const_data_ptr<T>(),
                      y.const_data_ptr<T>(), log_sums.const_data_ptr<float>(),
                      unit);
      }
    });
  });
  return dqkv;
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def(
      "causal_attention_backward(Tensor dy, Tensor qkv, Tensor y, Tensor "
      "log_sums, int heads) -> Tensor");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("causal_attention_backward", BackwardOnCpu);
}

}  // namespace

at::Tensor CausalAttentionBackward(const at::Tensor& dy, const at::Tensor& qkv,
                                   const at::Tensor& y,
                                   const at::Tensor& log_sums, int64_t heads) {
  static const auto op = FindOperator<decltype(BackwardOnCpu)>(
      "tandem::causal_attention_backward");
  return op.call(dy, qkv, y, log_sums, heads);
}

}  // namespace tandem
