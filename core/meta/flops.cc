#include "core/meta/flops.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/meta/meta_scope.h"
#include "core/meta/operator_flops.h"
#include "core/model/layer_list.h"
#include "core/model/make_layers.h"

namespace tandem {
namespace {

thread_local double counted = 0;

using Sizes = std::vector<int64_t>;

// When it begins: its inputs are known no longer than that.
std::unique_ptr<at::ObserverContext> Count(const at::RecordFunction& call) {
  counted += OperatorFlops(call.name(), call.inputs());
  return nullptr;
}

// Counts what the calling thread's operators do while it lives.
class Counting {
 public:
  Counting()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&Count).needsInputs(true).scopes(
                {at::RecordScope::FUNCTION}))) {
    counted = 0;
  }
  ~Counting() { at::removeCallback(handle_); }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  const at::CallbackHandle handle_;
};

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

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("convolution_overrideable", &ConvolutionShape);
  library.impl("index_select", &IndexSelectShape);
  library.impl("relu", &ReluShape);
  library.impl("relu_", &ReluShapeInPlace);
  library.impl("where.self", &WhereShape);
  library.impl("where.self_out", &WhereShapeOut);
  library.impl("native_layer_norm", &LayerNormShapes);
  library.impl("native_batch_norm", &BatchNormShapes);
}

absl::StatusOr<LayerList> OnMeta(const LayerSpecs& specs) {
  const MetaScope no_storage;
  return MakeModelLayers(specs, /*seed=*/0);
}

}  // namespace

absl::StatusOr<double> ForwardFlops(const LayerSpecs& specs,
                                    const std::vector<int64_t>& input_shape,
                                    c10::ScalarType dtype) {
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers, OnMeta(specs));
  SetTraining(layers, false);
  std::vector<int64_t> sizes = input_shape;
  sizes.insert(sizes.begin(), 1);
  return CatchTorchOr(
      [&] {
        const at::NoGradGuard no_grad;
        const at::Tensor input =
            at::empty(sizes, at::device(at::kMeta).dtype(dtype));
        const Counting counting;
        Forward(layers, input);
        return counted;
      },
      "counting the model's FLOPs");
}

}  // namespace tandem
