#include "models/functions/conv2d_function.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/ones.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/model/weight_gradient_sink.h"
#include "core/precision/autocast.h"
#include "core/precision/low_precision_copy.h"
#include "models/functions/image_kernels.h"

namespace tandem {
namespace {

at::Tensor InDtypeLike(const at::Tensor& like, const at::Tensor& gradient) {
  return gradient.defined() ? gradient.to(like.scalar_type()) : gradient;
}

// The weight as a convolution of x computes with it. Where that is a copy, it
// is one in x's format, which LibTorch would bring it into in every call.
at::Tensor WeightFor(const at::Tensor& x, const at::Tensor& weight,
                     at::ScalarType dtype) {
  return LowPrecisionCopy(weight, dtype,
                          weight.is_contiguous() ? x.suggest_memory_format()
                                                 : at::MemoryFormat::Preserve);
}

at::Tensor WeightGradientLike(const at::Tensor& weight,
                              const at::Tensor& gradient) {
  return gradient.defined()
             ? gradient.to(weight.scalar_type(), /*non_blocking=*/false,
                           /*copy=*/false, weight.suggest_memory_format())
             : gradient;
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
bool HasIdleTaps(const at::Tensor& x, at::IntArrayRef weight_sizes,
                 int64_t stride, int64_t padding) {
  return HasIdleTap(weight_sizes[2], x.size(2), stride, padding) ||
         HasIdleTap(weight_sizes[3], x.size(3), stride, padding);
}

OperatorGradients Conv2dGradients(const at::Tensor& dy, const at::Tensor& x,
                                  const at::Tensor& weight, int64_t stride,
                                  int64_t padding,
                                  const WantedGradients& wanted) {
  const at::ScalarType dtype = HasIdleTaps(x, weight.sizes(), stride, padding)
                                   ? weight.scalar_type()
                                   : x.scalar_type();
  auto [dx, dw, db] = at::convolution_backward(
      dy.to(dtype), x.to(dtype), WeightFor(x, weight, dtype),
      /*bias_sizes=*/at::IntArrayRef{weight.size(0)}, {stride, stride},
      {padding, padding}, /*dilation=*/{1, 1},
      /*transposed=*/false, /*output_padding=*/{0, 0}, /*groups=*/1, wanted);
  return {InDtypeLike(x, dx), WeightGradientLike(weight, dw),
          InDtypeLike(weight, db)};
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

// Is a float weight to be used in a lower precision?
bool Autocasts(const at::Tensor& x, const at::Tensor& weight) {
  return ConvolutionDtype(x) != weight.scalar_type() &&
         CurrentAutocast(x.device().type()).is_enabled;
}

at::Tensor PlainConv2d(const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, int64_t stride,
                       int64_t padding) {
  const at::ScalarType dtype = x.scalar_type();
  return at::conv2d(x, WeightFor(x, weight, dtype),
                    bias.defined() ? LowPrecisionCopy(bias, dtype) : bias,
                    stride, padding);
}

// Stands for a convolution and its backward where these are timed: one of such
// sizes, which gives the gradients that it is to give.
class TimedConvolution {
 public:
  TimedConvolution(const at::Tensor& x, const at::Tensor& weight,
                   const at::Tensor& bias, const PatchShape& shape)
      : dtype_(ConvolutionDtype(x)),
        weight_dtype_(weight.scalar_type()),
        sizes_(weight.sizes().vec()),
        has_bias_(bias.defined()),
        shape_(shape),
        wanted_({RecordsGradients(x, {}, {}), RecordsGradients({}, weight, {}),
                 RecordsGradients({}, {}, bias)}) {}

  ImageOperator Named(const std::string& name) const {
    ImageOperator described = {name, sizes_};
    described.numbers.insert(described.numbers.end(),
                             {shape_.stride, shape_.padding, has_bias_,
                              wanted_[0], wanted_[1], dtype_ != weight_dtype_});
    return described;
  }

  at::MemoryFormat Format(const at::Tensor& x) {
    return FasterFormat(
        x, dtype_, Named("convolution"),
        [this](const at::Tensor& images) { return Run(images); });
  }

  // Whether `other` computes it faster.
  bool IsSlowerThan(const ConvolutionKernel& other, const at::Tensor& x,
                    bool fixed) {
    return FasterKernel(x, dtype_, Named("small convolution"),
                        {{"onednn",
                          [this](const at::Tensor& images) {
                            return Run(InFormat(images, Format(images)));
                          }},
                         {other.name,
                          [&](const at::Tensor& images) {
                            return other.run(
                                images,
                                Weight(dtype_, at::MemoryFormat::Contiguous),
                                wanted_);
                          }}},
                        fixed ? 1 : 0) == 1;
  }

 private:
  // Made by the first run, which is not timed: a parameter is there, too, and
  // its copy is written once a step.
  const at::Tensor& Weight(at::ScalarType dtype, at::MemoryFormat format) {
    at::Tensor& weight = weights_[{dtype, format}];
    if (!weight.defined()) {
      weight = at::ones(sizes_, at::TensorOptions(dtype)).contiguous(format);
    }
    return weight;
  }

  at::Tensor Run(const at::Tensor& images) {
    const bool has_copy =
        dtype_ != weight_dtype_ &&
        !HasIdleTaps(images, sizes_, shape_.stride, shape_.padding);
    const at::Tensor& weight =
        has_copy ? Weight(dtype_, images.suggest_memory_format())
                 : Weight(weight_dtype_, at::MemoryFormat::Contiguous);
    const at::Tensor bias =
        has_bias_ ? at::ones(sizes_[0], weight.options()) : at::Tensor();
    const at::Tensor y =
        PlainConv2d(images, weight, bias, shape_.stride, shape_.padding);
    if (!wanted_[0] && !wanted_[1]) return at::Tensor();
    return Conv2dGradients(y, images, weight, shape_.stride, shape_.padding,
                           wanted_)[0];
  }

  const at::ScalarType dtype_;
  const at::ScalarType weight_dtype_;
  const std::vector<int64_t> sizes_;
  const bool has_bias_;
  const PatchShape shape_;
  const WantedGradients wanted_;
  std::map<std::pair<at::ScalarType, at::MemoryFormat>, at::Tensor> weights_;
};

// Weights that are in channels-last themselves have decided.
at::Tensor InFasterFormat(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& bias, const PatchShape& shape) {
  if (!shape.Fits(x, weight) || !weight.is_contiguous()) return x;
  return InFormat(x, TimedConvolution(x, weight, bias, shape).Format(x));
}

}  // namespace

at::ScalarType ConvolutionDtype(const at::Tensor& x) {
  return AutocastDtype(x.device().type(), x.scalar_type());
}

at::Tensor Conv2dFunction(const at::Tensor& given, const at::Tensor& weight,
                          const at::Tensor& bias, int64_t stride,
                          int64_t padding) {
  const bool is_mixed = Autocasts(given, weight);
  const at::Tensor any_x =
      InFasterFormat(given, weight, bias, {weight.size(-1), stride, padding});
  if (any_x.dim() != 4 ||
      !(is_mixed || WantsSplitBackward(any_x, weight, bias))) {
    return at::conv2d(any_x, weight, bias, stride, padding);
  }
  const at::Tensor x = any_x.to(ConvolutionDtype(any_x));
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::NoGradGuard no_grad;  // LowPrecisionCopy asks
    y = PlainConv2d(x, weight, bias, stride, padding);
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

bool IsFasterThanConv2d(const ConvolutionKernel& other, const at::Tensor& x,
                        const at::Tensor& weight, const PatchShape& shape,
                        bool fixed) {
  return TimedConvolution(x, weight, /*bias=*/{}, shape)
      .IsSlowerThan(other, x, fixed);
}

}  // namespace tandem
