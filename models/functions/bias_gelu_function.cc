#include "models/functions/bias_gelu_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>

#include <tuple>

#include "models/functions/fused_operands.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

const char* Approximate(GeluForm form) {
  return form == GeluForm::kTanh ? "tanh" : "none";
}

bool IsFused(const at::Tensor& x, const at::Tensor& bias) {
  return IsForFusedKernels(x) && bias.scalar_type() == x.scalar_type() &&
         !at::GradMode::is_enabled();
}

// Gradients of both, as tuples of at::Tensor go.
std::tuple<at::Tensor, at::Tensor> Gradients(const at::Tensor& dy,
                                             const at::Tensor& x,
                                             const at::Tensor& bias,
                                             GeluForm form) {
  if (IsFused(x, bias)) {
    auto [dx, dbias] = BiasGeluBackward(dy, x, bias, form);
    return {dx, dbias.to(bias.scalar_type())};
  }
  const at::Tensor dx = at::gelu_backward(dy, x + bias, Approximate(form));
  return {dx, dx.reshape({-1, bias.size(0)}).sum(0)};
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
    y = IsFused(x, bias) ? BiasGelu(x, bias, form)
                         : at::gelu(x + bias, Approximate(form));
  }
  if (!RecordsGradients(x, bias, /*bias=*/{})) return y;
  return WithSplitBackward(y, x, bias, /*bias=*/{}, Operator(form));
}

}  // namespace tandem
