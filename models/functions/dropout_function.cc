#include "models/functions/dropout_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <string>

#include "core/device/placement.h"

namespace tandem {
namespace {

using torch::autograd::variable_list;

class DropoutBackward : public torch::autograd::Node {
 public:
  explicit DropoutBackward(const DropoutDraws& draws) : draws_(draws) {}

  std::string name() const override { return "DropoutBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& dy = gradients[0];
    variable_list results(2);
    if (!dy.defined()) return results;
    if (task_should_compute_output(0)) {
      results[0] = DropoutFunction(dy, /*residual=*/{}, draws_);
    }
    results[1] = dy;
    return results;
  }

 private:
  DropoutDraws draws_;
};

at::Tensor WithMask(const at::Tensor& x, const at::Tensor& residual,
                    const DropoutDraws& draws) {
  at::Tensor mask;
  {
    const at::NoGradGuard no_grad;
    mask = SendTo(x.device(),
                  DropoutAdd(at::ones(x.sizes(), at::kFloat), {}, draws))
               .to(x.scalar_type());
  }
  const at::Tensor y = x * mask;
  return residual.defined() ? y + residual : y;
}

}  // namespace

at::Tensor DropoutFunction(const at::Tensor& x, const at::Tensor& residual,
                           const DropoutDraws& draws) {
  if (!HasDropoutAdd(x) ||
      (residual.defined() && residual.scalar_type() != x.scalar_type())) {
    return WithMask(x, residual, draws);
  }
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    y = DropoutAdd(x, residual, draws);
  }
  if (torch::autograd::compute_requires_grad(x, residual)) {
    const auto node = c10::make_intrusive<DropoutBackward>(draws);
    node->set_next_edges(torch::autograd::collect_next_edges(x, residual));
    torch::autograd::set_history(y, node);
  }
  return y;
}

}  // namespace tandem
