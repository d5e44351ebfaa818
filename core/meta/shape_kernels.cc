// Kernels for the meta device of operators that LibTorch has none for in C++.
// Linking this library registers them.

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "core/meta/operator_flops.h"

namespace tandem {
namespace {

using Sizes = std::vector<int64_t>;

// LibTorch has shapes for few operators in C++: PyTorch's others are Python's
// (torch/_meta_registrations.py).
at::Tensor IndexSelectShape(const at::Tensor& values, int64_t dim,
                            const at::Tensor& index) {
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes.at(static_cast<size_t>(dim < 0 ? dim + values.dim() : dim)) =
      index.numel();
  return at::empty(sizes, values.options());
}

at::Tensor WhereShape(const at::Tensor& condition, const at::Tensor& a,
                      const at::Tensor& b) {
  return at::empty(
      at::infer_size(condition.sizes(), at::infer_size(a.sizes(), b.sizes())),
      condition.options().dtype(at::result_type(a, b)));
}

at::Tensor ReluShape(const at::Tensor& x) { return at::empty_like(x); }

at::Tensor& ReluShapeInPlace(at::Tensor& x) { return x; }

at::Tensor& WhereShapeOut(const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, at::Tensor& out) {
  return out;
}

at::Tensor ConvolutionShape(const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>&,
                            at::IntArrayRef stride, at::IntArrayRef padding,
                            at::IntArrayRef dilation, bool transposed,
                            at::IntArrayRef output_padding, int64_t groups) {
  Sizes sizes = OutputPlaces(input, weight,
                             {stride.vec(), padding.vec(), dilation.vec(),
                              output_padding.vec(), transposed});
  const int64_t channels =
      transposed ? weight.size(1) * groups : weight.size(0);
  sizes.insert(sizes.begin(), {input.size(0), channels});
  return at::empty(sizes, input.options());
}

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

ThreeTensors LayerNormShapes(const at::Tensor& x, at::IntArrayRef normalized,
                             const std::optional<at::Tensor>&,
                             const std::optional<at::Tensor>&, double) {
  std::vector<int64_t> rows = x.sizes().vec();
  for (size_t i = 0; i < normalized.size(); ++i) rows.end()[-1 - i] = 1;
  return {at::empty_like(x), at::empty(rows, x.options()),
          at::empty(rows, x.options())};
}

ThreeTensors BatchNormShapes(const at::Tensor& x,
                             const std::optional<at::Tensor>&,
                             const std::optional<at::Tensor>&,
                             const std::optional<at::Tensor>&,
                             const std::optional<at::Tensor>&, bool training,
                             double, double) {
  const int64_t channels = training ? x.size(1) : 0;
  return {at::empty_like(x), at::empty({channels}, x.options()),
          at::empty({channels}, x.options())};
}

at::Tensor EmbeddingGradientShape(const at::Tensor& dy, const at::Tensor&,
                                  int64_t rows, int64_t, bool) {
  return at::empty({rows, dy.size(-1)}, dy.options());
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("convolution_overrideable", &ConvolutionShape);
  library.impl("embedding_dense_backward", &EmbeddingGradientShape);
  library.impl("index_select", &IndexSelectShape);
  library.impl("relu", &ReluShape);
  library.impl("relu_", &ReluShapeInPlace);
  library.impl("where.self", &WhereShape);
  library.impl("where.self_out", &WhereShapeOut);
  library.impl("native_layer_norm", &LayerNormShapes);
  library.impl("native_batch_norm", &BatchNormShapes);
}

}  // namespace
}  // namespace tandem
