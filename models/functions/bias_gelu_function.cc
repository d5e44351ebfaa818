#include "models/functions/bias_gelu_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sum.h>

#include <tuple>

#include "core/precision/low_precision_copy.h"
#include "models/functions/fused_operands.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

const char* Approximate(GeluForm form) {
  return form == GeluForm::kTanh ? "tanh" : "none";
}

bool IsFused(const at::Tensor& x) {
  return IsForFusedKernels(x) && !at::GradMode::is_enabled();
}

// Gradients of both, as tuples of at::Tensor go.
std::tuple<at::Tensor, at::Tensor> Gradients(const at::Tensor& dy,
                                             const at::Tensor& x,
                                             const at::Tensor& bias,
                                             GeluForm form) {
  const at::Tensor addend = LowPrecisionCopy(bias, x.scalar_type());
  if (IsFused(x)) {
    auto [dx, dbias] = BiasGeluBackward(dy, x, addend, form);
    return {dx, dbias.to(bias.scalar_type())};
  }
  const at::Tensor dx = at::gelu_backward(dy, x + addend, Approximate(form));
  return {dx, at::sum(dx.reshape({-1, bias.size(0)}), /*dim=*/0,
                      /*keepdim=*/false, bias.scalar_type())};
}

// Its "weight" is the bias.
SplitOperator Operator(GeluForm form) {
  SplitOperator operation;
  operation.name = "BiasGeluBackward";
  operation.weights_come_with_input = true;
  operation.backward = [form](const at::Tensor& dy, const at::Tensor& x,
                              const at::Tensor& bias,
                              const WantedGradients& wanted) {
    auto [dx, dbias] = Gradients(dy, x, bias, form);
    return OperatorGradients{wanted[0] ? dx : at::Tensor(),
                             wanted[1] ? dbias : at::Tensor(), at::Tensor()};
  };
  return operation;
}

}  // namespace

at::Tensor BiasGeluFunction(const at::Tensor& x, const at::Tensor& bias,
                            GeluForm form) {
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::NoGradGuard no_grad;  // IsFused asks
    const at::Tensor addend = LowPrecisionCopy(bias, x.scalar_type());
    y = IsFused(x) ? BiasGelu(x, addend, form)
                   : at::gelu(x + addend, Approximate(form));
  }
  if (!RecordsGradients(x, bias, /*bias=*/{})) return y;
  return WithSplitBackward(y, x, bias, /*bias=*/{}, Operator(form));
}

}  // namespace tandem
