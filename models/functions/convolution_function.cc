#include "models/functions/convolution_function.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/autotune/kernel_choices.h"
#include "core/device/host_memory.h"
#include "core/model/gradient_place.h"
#include "core/model/weight_gradient_sink.h"
#include "core/precision/low_precision_copy.h"
#include "models/functions/conv2d_function.h"
#include "models/functions/image_patches.h"
#include "models/functions/matrix_product.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// [out, in, kernel, kernel] -> [out, in * kernel * kernel]
at::Tensor WeightRows(const at::Tensor& weight) {
  return weight.reshape({weight.size(0), -1});
}

// [n, channels, h, w] -> [n * h * w, channels]
at::Tensor PixelRows(const at::Tensor& images) {
  return images.permute({0, 2, 3, 1}).reshape({-1, images.size(1)});
}

// Products give channels-last by themselves, and take it.
at::MemoryFormat FormatOfResult(const at::Tensor& x) {
  return KernelChoices::OfProcess().measures() ? x.suggest_memory_format()
                                               : at::MemoryFormat::Contiguous;
}

// [n, out, oh, ow]
at::Tensor ConvolvedByProduct(const at::Tensor& x, const at::Tensor& patches,
                              const at::Tensor& weight,
                              const PatchShape& shape) {
  return MatrixProduct(patches, WeightRows(weight).t())
      .view({x.size(0), shape.OutputSize(x.size(2)),
             shape.OutputSize(x.size(3)), weight.size(0)})
      .permute({0, 3, 1, 2})
      .contiguous(FormatOfResult(x));
}

// Operands: {dy, patches} as matrices. Undefined, if it has been put in its
// place.
std::vector<at::Tensor> PatchesWeightGradient(
    const std::vector<at::Tensor>& weights,
    absl::Span<const DeferredGradients::Operands> microbatches,
    absl::Span<const int64_t>) {
  const auto operands = JoinOperands(microbatches);
  const at::Tensor dy = operands[0].t();
  const at::Tensor& weight = weights[0];
  const bool has_put =
      weight.is_contiguous() &&
      GradientPlace::Put(
          weight,
          [&](const at::Tensor& gradient) {
            PutMatrixProduct(gradient.view({weight.size(0), -1}), dy,
                             operands[1]);
          },
          [&] { return HasFiniteProduct(dy, operands[1]); });
  if (has_put) return {at::Tensor()};
  return {MatrixProductIn(weight.scalar_type(), dy, operands[1])
              .view(weight.sizes())};
}

// How a gradient of x lies in memory, and in which dtype it is.
struct ImageLayout {
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  at::MemoryFormat format;
};

// dy [n * oh * ow, out]
at::Tensor ImageGradient(const at::Tensor& dy, const at::Tensor& weight,
                         const ImageLayout& layout, const PatchShape& shape) {
  const at::Tensor rows =
      MatrixProduct(dy, WeightRows(LowPrecisionCopy(weight, layout.dtype)));
  return SumPatchRows(rows, layout.sizes, shape, layout.format)
      .to(layout.dtype);
}

class ConvolutionBackward : public torch::autograd::Node, public SplitNode {
 public:
  ConvolutionBackward(const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& patches, const PatchShape& shape)
      : weight_(weight, /*is_output=*/false),
        patches_(patches, /*is_output=*/false),
        layout_({x.sizes().vec(), x.scalar_type(), FormatOfResult(x)}),
        shape_(shape),
        sink_(WeightGradientSink::Current()) {}

  std::string name() const override { return "ConvolutionByProductBackward"; }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!at::GradMode::is_enabled(), name(),
                " cannot itself be differentiated");
    variable_list results(2);
    if (!gradients[0].defined()) return results;
    const at::Tensor dy = PixelRows(gradients[0]);
    const at::Tensor weight = weight_.unpack(getptr());
    if (task_should_compute_output(0)) {
      results[0] = ImageGradient(dy, weight, layout_, shape_);
    }
    if (task_should_compute_output(1)) {
      results[1] = WeightGradient(weight, dy);
    }
    return results;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    weight_.reset_data();
    patches_.reset_data();
  }

 private:
  // None, if it has been left for later.
  at::Tensor WeightGradient(const at::Tensor& weight, const at::Tensor& dy) {
    DeferredGradients gradients;
    gradients.weights = {weight};
    gradients.function = PatchesWeightGradient;
    gradients.operands = {dy, patches_.unpack(getptr())};
    const std::shared_ptr<WeightGradientSink> sink = sink_.lock();
    if (sink == nullptr || !WeightGradientSink::MayDefer(weight)) {
      return PatchesWeightGradient(gradients.weights, {gradients.operands},
                                   {})[0];
    }
    sink->Defer(std::move(gradients));
    return at::Tensor();
  }

  SavedVariable weight_;
  SavedVariable patches_;
  const ImageLayout layout_;
  const PatchShape shape_;
  const std::weak_ptr<WeightGradientSink> sink_;
};

at::Tensor TimedProducts(const at::Tensor& images, const at::Tensor& weight,
                         const WantedGradients& wanted,
                         const PatchShape& shape) {
  const at::Tensor patches = PatchRows(images, shape);
  const at::Tensor y = ConvolvedByProduct(images, patches, weight, shape);
  if (!wanted[0] && !wanted[1]) return at::Tensor();
  const at::Tensor dy = PixelRows(y);
  if (wanted[1]) MatrixProductIn(at::kFloat, dy.t(), patches);
  if (!wanted[0]) return at::Tensor();
  return ImageGradient(
      dy, weight,
      {images.sizes().vec(), images.scalar_type(), FormatOfResult(images)},
      shape);
}

// Whether products may compute it: in float, or under autocast in bf16.
bool MayBeByProducts(const at::Tensor& x, const at::Tensor& weight,
                     const PatchShape& shape) {
  const auto is_plain = [](const at::Tensor& tensor) {
    return RunsCpuKernels(tensor.device().type()) &&
           tensor.layout() == at::kStrided;
  };
  const at::ScalarType dtype = ConvolutionDtype(x);
  return shape.Fits(x, weight) && is_plain(x) && is_plain(weight) &&
         weight.scalar_type() == at::kFloat && shape.kernel > 1 &&
         (dtype == at::kFloat || dtype == at::kBFloat16) &&
         x.scalar_type() == dtype;
}

bool IsForProducts(const at::Tensor& x, const at::Tensor& weight,
                   const PatchShape& shape) {
  if (!MayBeByProducts(x, weight, shape)) return false;
  const int64_t places =
      shape.OutputSize(x.size(2)) * shape.OutputSize(x.size(3));
  const bool is_small =
      x.scalar_type() == at::kFloat && places <= kGreatestSmallOutput &&
      x.size(0) * places * weight.numel() >= kLeastOneDnnProduct;
  if (places > kGreatestMeasuredOutput || !weight.is_contiguous()) {
    return is_small;
  }
  const ConvolutionKernel products = {
      "products", [&](const at::Tensor& images, const at::Tensor& values,
                      const WantedGradients& wanted) {
        return TimedProducts(images, values, wanted, shape);
      }};
  return IsFasterThanConv2d(products, x, weight, shape, /*fixed=*/is_small);
}

}  // namespace

at::Tensor ConvolutionFunction(const at::Tensor& x, const at::Tensor& weight,
                               int64_t stride, int64_t padding) {
  using torch::autograd::collect_next_edges;
  const PatchShape shape = {weight.size(-1), stride, padding};
  if (!IsForProducts(x, weight, shape)) {
    return Conv2dFunction(x, weight, /*bias=*/{}, stride, padding);
  }
  at::Tensor y;
  at::Tensor patches;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::NoGradGuard no_grad;  // LowPrecisionCopy asks
    patches = PatchRows(x, shape);
    y = ConvolvedByProduct(x, patches,
                           LowPrecisionCopy(weight, x.scalar_type()), shape);
  }
  if (torch::autograd::compute_requires_grad(x, weight)) {
    const auto node =
        c10::make_intrusive<ConvolutionBackward>(x, weight, patches, shape);
    node->set_next_edges(collect_next_edges(x, weight));
    torch::autograd::set_history(y, node);
  }
  return y;
}

}  // namespace tandem
