#include "core/fused/layer_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cmath>
#include <cstdint>

#include "core/base/find_operator.h"
#include "core/fused/element.h"
#include "core/fused/lanes.h"
#include "core/fused/layer_norm_arguments.h"
#include "core/fused/row_blocks.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

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
  const RowShape shape = RowShapeOf(x);
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
  const int64_t rows = RowShapeOf(in).rows;
  const at::Tensor mean = at::empty({rows}, in.options().dtype(at::kFloat));
  const at::Tensor rstd = at::empty_like(mean);
  WithElementType("layer_norm", in.scalar_type(), [&](auto element) {
    RunForward<decltype(element)>(y, mean, rstd, in, AsFloats(weight),
                                  AsFloats(bias), eps);
  });
  return {y, mean, rstd};
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def(
      "layer_norm(Tensor x, Tensor weight, Tensor bias, float eps) -> "
      "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("layer_norm", ForwardOnCpu);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> FusedLayerNorm(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    double eps) {
  static const auto op =
      FindOperator<decltype(ForwardOnCpu)>("tandem::layer_norm");
  return op.call(x, weight, bias, eps);
}

}  // namespace tandem
