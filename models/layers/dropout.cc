#include "models/layers/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/context/compute_context.h"
#include "core/device/placement.h"
#include "core/random/random.h"
#include "models/layers/module_layer.h"

namespace tandem {
namespace {

using torch::autograd::variable_list;

// x, of which `draws` drops elements and multiplies the others by 1 / (1 - p),
// plus `residual` unless that is undefined. x [samples, ...] of any
// floating-point dtype and device; residual of the same shape and dtype. As
// often differentiable as one likes.
//
// One pass where core/fused/dropout_add.h has a kernel; elsewhere the mask,
// made on the CPU, is a tensor.
at::Tensor DropoutFunction(const at::Tensor& x, const at::Tensor& residual,
                           const DropoutDraws& draws);

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

// Key of all that is dropped at one place of a model in one step.
uint64_t KeyFor(const Samples& samples, absl::string_view name) {
  return SipHash(samples.seed, static_cast<uint64_t>(samples.step), name);
}

}  // namespace

at::Tensor SampleDropout(const at::Tensor& x, double p, absl::string_view name,
                         const SamplePart& part) {
  const auto samples = SampleScope::Current();
  if (!samples.has_value()) return at::dropout(x, p, /*train=*/true);
  TORCH_CHECK(x.dim() > 0, "dropout ", std::string(name),
              " takes [samples, ...], but a scalar was given");
  if (p == 0) return x;
  return DropoutFunction(x, /*residual=*/{},
                         {KeyFor(*samples, name), samples->first, p, part});
}

Dropout::Dropout(std::string name, double p) : name_(std::move(name)), p_(p) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, "dropout ", name_,
                    " cannot drop with probability ", p,
                    ": it must be from 0 to 1");
}

at::Tensor Dropout::forward(const at::Tensor& x) const {
  if (!is_training()) return x;
  if (p_ > 0) CheckDrawsAlike(region_, name_);
  SamplePart part;
  part.begin = region_.FirstElement(x);
  return SampleDropout(x, p_, name_, part);
}

void CheckDrawsAlike(const TensorRegion& region, absl::string_view name) {
  TORCH_CHECK(region.is_whole() || SampleScope::Current().has_value(),
              "dropout ", std::string(name), " is divided over ",
              region.degree(),
              " ranks, which draw alike in a SampleScope alone "
              "(core/context/compute_context.h)");
}

LayerSpec DropoutLayer(const std::string& name, double p) {
  return ModuleLayer<Dropout>(name, "Dropout", [name, p] {
    return std::make_shared<Dropout>(name, p);
  });
}

}  // namespace tandem
