#include "models/functions/convolution_function.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
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
#include "core/model/weight_gradient_sink.h"
#include "core/precision/autocast.h"
#include "core/precision/low_precision_copy.h"
#include "models/functions/matrix_product.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

at::Tensor InDtypeLike(const at::Tensor& like, const at::Tensor& gradient) {
  return gradient.defined() ? gradient.to(like.scalar_type()) : gradient;
}

// Is there a row (or column) of the kernel that falls on padding alone?
bool HasIdleTap(int64_t kernel, int64_t size, int64_t stride, int64_t padding) {
  const int64_t places = (size + 2 * padding - kernel) / stride + 1;
  for (int64_t tap = 0; tap < kernel; ++tap) {
    bool is_idle = true;
    for (int64_t place = 0; place < places && is_idle; ++place) {
      const int64_t at = place * stride - padding + tap;
      is_idle = at < 0 || at >= size;
    }
    if (is_idle) return true;
  }
  return false;
}

// oneDNN's AMX kernels leave the gradients of such weights unwritten.
at::ScalarType DtypeOfGradients(const at::Tensor& x, const at::Tensor& weight,
                                int64_t stride, int64_t padding) {
  const bool is_idle = HasIdleTap(weight.size(2), x.size(2), stride, padding) ||
                       HasIdleTap(weight.size(3), x.size(3), stride, padding);
  return is_idle ? weight.scalar_type() : x.scalar_type();
}

OperatorGradients Conv2dGradients(const at::Tensor& dy, const at::Tensor& x,
                                  const at::Tensor& weight, int64_t stride,
                                  int64_t padding,
                                  const WantedGradients& wanted) {
  const at::ScalarType dtype = DtypeOfGradients(x, weight, stride, padding);
  auto [dx, dw, db] = at::convolution_backward(
      dy.to(dtype), x.to(dtype), LowPrecisionCopy(weight, dtype),
      /*bias_sizes=*/at::IntArrayRef{weight.size(0)}, {stride, stride},
      {padding, padding}, /*dilation=*/{1, 1},
      /*transposed=*/false, /*output_padding=*/{0, 0}, /*groups=*/1, wanted);
  return {InDtypeLike(x, dx), InDtypeLike(weight, dw), InDtypeLike(weight, db)};
}

// Operands: {dy, x}. Settings: {stride, padding}.
std::vector<at::Tensor> JoinedConv2dGradients(
    const std::vector<at::Tensor>& weights,
    absl::Span<const DeferredGradients::Operands> microbatches,
    absl::Span<const int64_t> settings) {
  const bool bias = weights.size() > 1;
  const auto operands = JoinOperands(microbatches);
  OperatorGradients all =
      Conv2dGradients(operands[0], operands[1], weights[0], settings[0],
                      settings[1], {false, true, bias});
  if (!bias) return {all[1]};
  return {all[1], all[2]};
}

at::ScalarType LowDtype(const at::Tensor& x) {
  return AutocastDtype(x.device().type(), x.scalar_type());
}

// Is a float weight to be used in a lower precision?
bool Autocasts(const at::Tensor& x, const at::Tensor& weight) {
  return LowDtype(x) != weight.scalar_type() &&
         CurrentAutocast(x.device().type()).is_enabled;
}

}  // namespace

at::Tensor Conv2dFunction(const at::Tensor& any_x, const at::Tensor& weight,
                          const at::Tensor& bias, int64_t stride,
                          int64_t padding) {
  const bool is_mixed = Autocasts(any_x, weight);
  if (any_x.dim() != 4 ||
      !(is_mixed || WantsSplitBackward(any_x, weight, bias))) {
    return at::conv2d(any_x, weight, bias, stride, padding);
  }
  const at::Tensor x = any_x.to(LowDtype(any_x));
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::NoGradGuard no_grad;  // LowPrecisionCopy asks
    const at::ScalarType dtype = x.scalar_type();
    y = at::conv2d(x, LowPrecisionCopy(weight, dtype),
                   bias.defined() ? LowPrecisionCopy(bias, dtype) : bias,
                   stride, padding);
  }
  if (!RecordsGradients(x, weight, bias)) return y;
  SplitOperator operation;
  operation.name = "SplitConvolutionBackward";
  operation.backward = [stride, padding](const at::Tensor& dy,
                                         const at::Tensor& x,
                                         const at::Tensor& weight,
                                         const WantedGradients& wanted) {
    return Conv2dGradients(dy, x, weight, stride, padding, wanted);
  };
  operation.joined = JoinedConv2dGradients;
  operation.settings = {stride, padding};
  return WithSplitBackward(y, x, weight, bias, std::move(operation));
}

namespace {

// Where a patch meets its image.
struct Tap {
  int64_t in_patch;  // row-major index in the kernel
  int64_t in_image;  // in elements from the channel's first
};

// The taps of the patch at (y, x) that lie within the image.
void FindTaps(const at::Tensor& images, const PatchShape& shape, int64_t y,
              int64_t x, std::vector<Tap>& taps) {
  taps.clear();
  for (int64_t ky = 0; ky < shape.kernel; ++ky) {
    const int64_t iy = y * shape.stride + ky - shape.padding;
    if (iy < 0 || iy >= images.size(2)) continue;
    for (int64_t kx = 0; kx < shape.kernel; ++kx) {
      const int64_t ix = x * shape.stride + kx - shape.padding;
      if (ix < 0 || ix >= images.size(3)) continue;
      taps.push_back({ky * shape.kernel + kx,
                      iy * images.stride(2) + ix * images.stride(3)});
    }
  }
}

// Calls visit(image, row, taps) for every patch. `taps` are the same for all
// images, so these come innermost.
template <typename Visit>
void ForEachPatch(const at::Tensor& images, const PatchShape& shape,
                  Visit visit) {
  const int64_t height = shape.OutputSize(images.size(2));
  const int64_t width = shape.OutputSize(images.size(3));
  std::vector<Tap> taps;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      FindTaps(images, shape, y, x, taps);
      for (int64_t n = 0; n < images.size(0); ++n) {
        visit(n, (n * height + y) * width + x, taps);
      }
    }
  }
}

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

at::Tensor PatchRows(const at::Tensor& images, const PatchShape& shape) {
  const int64_t channels = images.size(1);
  const int64_t area = shape.kernel * shape.kernel;
  const int64_t places =
      shape.OutputSize(images.size(2)) * shape.OutputSize(images.size(3));
  const int64_t width = channels * area;
  // Places outside of the image stay zero.
  const at::Tensor rows =
      at::zeros({images.size(0) * places, width}, images.options());
  const at::Tensor seen = HostView(images);
  if (seen.is_meta()) return rows;  // an imagined device has no values
  const at::Tensor written = HostView(rows);
  const float* const from = seen.const_data_ptr<float>();
  float* const to = written.mutable_data_ptr<float>();
  ForEachPatch(images, shape,
               [&](int64_t n, int64_t row, const std::vector<Tap>& taps) {
                 const float* source = from + n * images.stride(0);
                 float* target = to + row * width;
                 for (int64_t c = 0; c < channels; ++c) {
                   for (const Tap& tap : taps) {
                     target[tap.in_patch] = source[tap.in_image];
                   }
                   source += images.stride(1);
                   target += area;
                 }
               });
  return rows;
}

at::Tensor SumPatchRows(const at::Tensor& rows, at::IntArrayRef sizes,
                        const PatchShape& shape) {
  const at::Tensor images = at::zeros(sizes, rows.options());
  const int64_t channels = images.size(1);
  const int64_t area = shape.kernel * shape.kernel;
  const at::Tensor seen = HostView(rows);
  if (seen.is_meta()) return images;
  const at::Tensor written = HostView(images);
  const float* const from = seen.const_data_ptr<float>();
  float* const to = written.mutable_data_ptr<float>();
  ForEachPatch(images, shape,
               [&](int64_t n, int64_t row, const std::vector<Tap>& taps) {
                 const float* source = from + row * channels * area;
                 float* target = to + n * images.stride(0);
                 for (int64_t c = 0; c < channels; ++c) {
                   for (const Tap& tap : taps) {
                     target[tap.in_image] += source[tap.in_patch];
                   }
                   source += area;
                   target += images.stride(1);
                 }
               });
  return images;
}

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
