#include "core/meta/flops.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/record_function.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/meta/meta_scope.h"
#include "core/model/layer_list.h"
#include "core/model/make_layers.h"

namespace tandem {
namespace {

thread_local double counted = 0;

double Numel(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel());
}

// Each element of the first factor meets a row of the second.
double OfProduct(const at::Tensor& first, const at::Tensor& second) {
  return 2 * Numel(first) * static_cast<double>(second.sizes().back());
}

using Sizes = std::vector<int64_t>;

struct Convolution {
  Sizes stride;  // each of as many dimensions as there are, or one for all
  Sizes padding;
  Sizes dilation;
  Sizes output_padding;
  bool transposed = false;
};

int64_t Of(const Sizes& sizes, size_t i) {
  return sizes.size() == 1 ? sizes[0] : sizes.at(i);
}

// Height x width, say.
Sizes OutputPlaces(const at::Tensor& input, const at::Tensor& weight,
                   const Convolution& how) {
  Sizes places;
  for (size_t i = 0; i + 2 < input.sizes().size(); ++i) {
    const auto d = static_cast<int64_t>(i) + 2;
    const int64_t reach = Of(how.dilation, i) * (weight.size(d) - 1) + 1;
    const int64_t stride = Of(how.stride, i);
    const int64_t padding = 2 * Of(how.padding, i);
    places.push_back(how.transposed
                         ? (input.size(d) - 1) * stride - padding + reach +
                               Of(how.output_padding, i)
                         : (input.size(d) + padding - reach) / stride + 1);
  }
  return places;
}

// Each place of the output (of the input, transposed) meets each weight once.
double OfConvolution(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  const Convolution how = {arguments[3].toIntVector(),
                           arguments[4].toIntVector(),
                           arguments[5].toIntVector(),
                           arguments[7].toIntVector(), arguments[6].toBool()};
  const int64_t places =
      c10::multiply_integers(how.transposed ? input.sizes().slice(2).vec()
                                            : OutputPlaces(input, weight, how));
  return 2 * static_cast<double>(input.size(0) * places) * Numel(weight);
}

double FlopsOf(const at::RecordFunction& call) {
  const std::string name = call.name();
  const c10::ArrayRef<c10::IValue> inputs = call.inputs();
  if (name == "aten::mm" || name == "aten::bmm") {
    return OfProduct(inputs[0].toTensor(), inputs[1].toTensor());
  }
  if (name == "aten::addmm" || name == "aten::baddbmm") {
    return OfProduct(inputs[1].toTensor(), inputs[2].toTensor());
  }
  return name == "aten::convolution" ? OfConvolution(inputs) : 0;
}

// When it begins: its inputs are known no longer than that.
std::unique_ptr<at::ObserverContext> Count(const at::RecordFunction& call) {
  counted += FlopsOf(call);
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
