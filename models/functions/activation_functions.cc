#include "models/functions/activation_functions.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "core/precision/low_precision_copy.h"
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

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The gradient of `gate` from that of silu(gate).
at::Tensor SiluGradient(const at::Tensor& d, const at::Tensor& gate) {
  if (!at::GradMode::is_enabled()) return at::silu_backward(d, gate);
  const at::Tensor share = at::sigmoid(gate);
  return d * share * (1 + gate * (1 - share));
}

class SwigluBackward : public torch::autograd::Node {
 public:
  SwigluBackward(const at::Tensor& gate, const at::Tensor& up)
      : gate_(gate, /*is_output=*/false), up_(up, /*is_output=*/false) {}

  std::string name() const override { return "SwigluBackward"; }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(2);
    const at::Tensor& dy = gradients[0];
    if (!dy.defined()) return results;
    const at::Tensor gate = gate_.unpack(getptr());
    const at::Tensor up = up_.unpack(getptr());
    if (task_should_compute_output(0)) {
      results[0] = SiluGradient(dy * up, gate);
    }
    if (task_should_compute_output(1)) results[1] = dy * at::silu(gate);
    return results;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    gate_.reset_data();
    up_.reset_data();
  }

 private:
  SavedVariable gate_;
  SavedVariable up_;
};

}  // namespace

at::Tensor SwigluFunction(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    y = at::silu(gate).mul_(up);
  }
  if (!torch::autograd::compute_requires_grad(gate, up)) return y;
  const auto node = c10::make_intrusive<SwigluBackward>(gate, up);
  node->set_next_edges(torch::autograd::collect_next_edges(gate, up));
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace tandem
