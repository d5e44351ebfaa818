#include "core/fused/layer_norm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cmath>
#include <cstdint>

#include "core/fused/element.h"
#include "core/fused/find_operator.h"
#include "core/fused/lanes.h"
#include "core/fused/row_blocks.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

// c10::Error unless `weight` (or bias) fits x.
void CheckLayerNorm(const at::Tensor& x, const at::Tensor& weight) {
  TORCH_CHECK(x.dim() >= 1 && weight.dim() == 1 &&
                  weight.size(0) == x.size(-1) &&
                  (weight.scalar_type() == at::kFloat ||
                   weight.scalar_type() == x.scalar_type()),
              "layer_norm of ", x.scalar_type(), x.sizes(),
              " and a weight or bias of ", weight.scalar_type(), weight.sizes(),
              ": these need one number for each of the last dimension, as ",
              "floats or of the same dtype");
}

at::Tensor AsFloats(const at::Tensor& x) {
  return x.to(at::kFloat).contiguous();
}

template <typename T>
struct Forward {
  static TANDEM_INLINE void Body(T* y, float* mean, float* rstd, const T* x,
                                 const float* weight, const float* bias,
                                 RowShape sizes, float eps) {
    const int64_t n = sizes.columns;
    for (int64_t row = 0; row < sizes.rows; ++row, x += n, y += n) {
      const float m =
          SumOfTerms(x, n,
                     [](const auto& v) TANDEM_INLINE_LAMBDA { return v; }) /
          static_cast<float>(n);
      const float square =
          SumOfTerms(x, n, [m](const auto& v) TANDEM_INLINE_LAMBDA {
            return (v - m) * (v - m);
          });
      const float r = 1 / std::sqrt(square / static_cast<float>(n) + eps);
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) {
        y[i] = Narrow<T>((Widen(x[i]) - m) * r * weight[i] + bias[i]);
      }
      mean[row] = m;
      rstd[row] = r;
    }
  }
};

template <typename T>
void RunForward(const at::Tensor& y, const at::Tensor& mean,
                const at::Tensor& rstd, const at::Tensor& x,
                const at::Tensor& weight, const at::Tensor& bias, double eps) {
  static const auto run = Choose<Forward<T>, T*, float*, float*, const T*,
                                 const float*, const float*, RowShape, float>();
  auto* to = y.mutable_data_ptr<T>();
  auto* m = mean.mutable_data_ptr<float>();
  auto* r = rstd.mutable_data_ptr<float>();
  const auto* from = x.const_data_ptr<T>();
  const auto* w = weight.const_data_ptr<float>();
  const auto* b = bias.const_data_ptr<float>();
  const RowShape shape = AsRows(x);
  ForRowBlocks(shape, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * shape.columns;
    run(to + at, m + begin, r + begin, from + at, w, b,
        {end - begin, shape.columns}, static_cast<float>(eps));
  });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ForwardOnCpu(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    double eps) {
  CheckLayerNorm(x, weight);
  CheckLayerNorm(x, bias);
  const at::Tensor in = x.contiguous();
  const at::Tensor y = at::empty_like(in);
  const int64_t rows = AsRows(in).rows;
  const at::Tensor mean = at::empty({rows}, in.options().dtype(at::kFloat));
  const at::Tensor rstd = at::empty_like(mean);
  WithElementType("layer_norm", in.scalar_type(), [&](auto element) {
    RunForward<decltype(element)>(y, mean, rstd, in, AsFloats(weight),
                                  AsFloats(bias), eps);
  });
  return {y, mean, rstd};
}

// With g = dy * weight and h = (x - mean) * rstd, which is y without weight and
// bias: dx = rstd * (g - mean of g - h * mean of g * h). Computes both parts or
// one, in one pass: dx, and to sums, [2, columns], dy * h and dy.
template <typename T, bool kInput, bool kWeights>
struct Backward {
  static TANDEM_INLINE void Body(T* dx, float* sums, const T* dy, const T* x,
                                 const float* mean, const float* rstd,
                                 const float* weight, RowShape sizes) {
    const int64_t n = sizes.columns;
    const auto count = static_cast<float>(n);
    [[maybe_unused]] float* of_bias = nullptr;
    if constexpr (kWeights) of_bias = sums + n;
    for (int64_t row = 0; row < sizes.rows; ++row, x += n, dy += n) {
      const float m = mean[row];
      const float r = rstd[row];
      Moments moments;
      if constexpr (kInput) moments = RowMoments(dy, x, weight, m, n);
      const float of_g = moments.g / count;
      const float of_product = moments.product * r / count;
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) {
        const float gradient = Widen(dy[i]);
        const float h = (Widen(x[i]) - m) * r;
        if constexpr (kInput) {
          const float g = gradient * weight[i];
          dx[i] = Narrow<T>(r * (g - of_g - h * of_product));
        }
        if constexpr (kWeights) {
          sums[i] += gradient * h;
          of_bias[i] += gradient;
        }
      }
      if constexpr (kInput) dx += n;
    }
  }

 private:
  // Sums of g, and of g * (x - mean).
  struct Moments {
    float g = 0;
    float product = 0;
  };

  static TANDEM_INLINE Moments RowMoments(const T* dy, const T* x,
                                          const float* weight, float mean,
                                          int64_t n) {
    LaneSum of_g;
    LaneSum of_product;
    int64_t i = 0;
    for (; i + kStride <= n; i += kStride) {
      TANDEM_UNROLL_4
      for (int64_t k = 0; k < kSums; ++k) {
        const int64_t at = i + k * kLanes;
        Lanes gradient;
        Lanes in;
        Lanes factor;
        LoadLanes(dy + at, gradient);
        LoadLanes(x + at, in);
        LoadLanes(weight + at, factor);
        const Lanes g = gradient * factor;
        of_g.Add(k, g);
        of_product.Add(k, g * (in - mean));
      }
    }
    for (; i < n; ++i) {
      const float g = Widen(dy[i]) * weight[i];
      of_g.AddOne(i, g);
      of_product.AddOne(i, g * (Widen(x[i]) - mean));
    }
    return {of_g.Total(), of_product.Total()};
  }
};

// What both parts of backward read.
template <typename T>
struct Saved {
  Saved(const at::Tensor& dy_, const at::Tensor& x_, const at::Tensor& mean_,
        const at::Tensor& rstd_)
      : dy(dy_.const_data_ptr<T>()),
        x(x_.const_data_ptr<T>()),
        mean(mean_.const_data_ptr<float>()),
        rstd(rstd_.const_data_ptr<float>()),
        shape(AsRows(x_)) {}

  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  RowShape shape;
};

// dx, unless it is undefined, and the sums, [2, columns].
template <typename T, bool kInput, bool kWeights>
at::Tensor RunBackward(const at::Tensor& dx, const Saved<T>& saved,
                       const at::Tensor& weight) {
  static const auto run =
      Choose<Backward<T, kInput, kWeights>, T*, float*, const T*, const T*,
             const float*, const float*, const float*, RowShape>();
  T* to = kInput ? dx.mutable_data_ptr<T>() : nullptr;
  const auto* w = weight.const_data_ptr<float>();
  const int64_t columns = saved.shape.columns;
  const auto part = [&](int64_t begin, int64_t end, float* sums) {
    const int64_t at = begin * columns;
    run(kInput ? to + at : nullptr, sums, saved.dy + at, saved.x + at,
        saved.mean + begin, saved.rstd + begin, w, {end - begin, columns});
  };
  if constexpr (kWeights) return SumOverRowBlocks(saved.shape, 2, part);
  ForRowBlocks(saved.shape,
               [&](int64_t begin, int64_t end) { part(begin, end, nullptr); });
  return at::Tensor();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> BackwardOnCpu(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
    const at::Tensor& rstd, const at::Tensor& weight, bool wants_input,
    bool wants_weights) {
  CheckLayerNorm(x, weight);
  const at::Tensor in = x.contiguous();
  const at::Tensor gradient = dy.contiguous();
  TORCH_CHECK(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type() &&
                  mean.numel() == AsRows(in).rows &&
                  rstd.numel() == mean.numel(),
              "layer_norm_backward of ", dy.scalar_type(), dy.sizes(), " for ",
              x.scalar_type(), x.sizes(), " with ", mean.numel(), " means");
  at::Tensor dx;
  at::Tensor sums;
  if (wants_input) dx = at::empty_like(in);
  WithElementType("layer_norm", in.scalar_type(), [&](auto element) {
    using T = decltype(element);
    const Saved<T> saved(gradient, in, mean, rstd);
    const at::Tensor factors = AsFloats(weight);
    if (wants_input && wants_weights) {
      sums = RunBackward<T, true, true>(dx, saved, factors);
    } else if (wants_input) {
      RunBackward<T, true, false>(dx, saved, factors);
    } else if (wants_weights) {
      sums = RunBackward<T, false, true>(dx, saved, factors);
    }
  });
  if (!wants_weights) return {dx, at::Tensor(), at::Tensor()};
  sums = sums.to(weight.scalar_type());
  return {dx, sums[0], sums[1]};
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def(
      "layer_norm(Tensor x, Tensor weight, Tensor bias, float eps) -> "
      "(Tensor, Tensor, Tensor)");
  library.def(
      "layer_norm_backward(Tensor dy, Tensor x, Tensor mean, Tensor rstd, "
      "Tensor weight, bool wants_input, bool wants_weights) -> "
      "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("layer_norm", ForwardOnCpu);
  library.impl("layer_norm_backward", BackwardOnCpu);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> FusedLayerNorm(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    double eps) {
  static const auto op =
      FindOperator<decltype(ForwardOnCpu)>("tandem::layer_norm");
  return op.call(x, weight, bias, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FusedLayerNormBackward(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
    const at::Tensor& rstd, const at::Tensor& weight, bool wants_input,
    bool wants_weights) {
  static const auto op =
      FindOperator<decltype(BackwardOnCpu)>("tandem::layer_norm_backward");
  return op.call(dy, x, mean, rstd, weight, wants_input, wants_weights);
}

}  // namespace tandem
