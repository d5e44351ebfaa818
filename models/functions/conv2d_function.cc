#include "models/functions/conv2d_function.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>

#include <utility>
#include <vector>

#include "core/precision/autocast.h"
#include "core/precision/low_precision_copy.h"
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

}  // namespace tandem
