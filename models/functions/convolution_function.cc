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

#include "core/device/host_memory.h"
#include "core/model/gradient_place.h"
#include "core/model/split_node.h"
#include "core/model/weight_gradient_sink.h"
#include "core/precision/autocast.h"
#include "models/functions/conv2d_function.h"
#include "models/functions/joined_operands.h"
#include "models/functions/matrix_product.h"
#include "models/functions/patches.h"
#include "models/functions/product_library.h"
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
      GradientPlace::Put(weight, [&](const at::Tensor& gradient) {
        PutMatrixProduct(gradient.view({weight.size(0), -1}), dy, operands[1]);
      });
  if (has_put) return {at::Tensor()};
  return {MatrixProduct(dy, operands[1]).view(weight.sizes())};
}

class ConvolutionBackward : public torch::autograd::Node, public SplitNode {
 public:
  ConvolutionBackward(const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& patches, const PatchShape& shape)
      : weight_(weight, /*is_output=*/false),
        patches_(patches, /*is_output=*/false),
        sizes_(x.sizes().vec()),
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
      results[0] =
          SumPatchRows(MatrixProduct(dy, WeightRows(weight)), sizes_, shape_);
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
  std::vector<int64_t> sizes_;
  PatchShape shape_;
  const std::weak_ptr<WeightGradientSink> sink_;
};

bool IsFloatForCpuKernels(const at::Tensor& tensor) {
  return RunsCpuKernels(tensor.device().type()) &&
         tensor.scalar_type() == at::kFloat &&
         AutocastDtype(tensor.device().type(), at::kFloat) == at::kFloat &&
         tensor.layout() == at::kStrided && tensor.dim() == 4;
}

bool IsForProducts(const at::Tensor& x, const at::Tensor& weight,
                   const PatchShape& shape) {
  if (!IsFloatForCpuKernels(x) || !IsFloatForCpuKernels(weight)) return false;
  if (x.size(1) != weight.size(1) || weight.size(2) != weight.size(3) ||
      shape.kernel == 1) {
    return false;
  }
  const int64_t height = shape.OutputSize(x.size(2));
  const int64_t width = shape.OutputSize(x.size(3));
  if (height < 1 || width < 1) return false;
  const int64_t places = height * width;
  return places <= kGreatestSmallOutput &&
         x.size(0) * places * weight.numel() >= kLeastOneDnnProduct;
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
    const at::NoGradGuard no_grad;
    patches = PatchRows(x, shape);
    y = MatrixProduct(patches, WeightRows(weight).t())
            .view({x.size(0), shape.OutputSize(x.size(2)),
                   shape.OutputSize(x.size(3)), weight.size(0)})
            .permute({0, 3, 1, 2})
            .contiguous();
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
