#include "core/loss/loss.h"

#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include "core/device/placement.h"
#include "core/loss/deferred_score.h"

namespace tandem {
namespace {

at::Tensor NothingOf(const at::Tensor& outputs) {
  const at::Tensor all = at::ones({}, outputs.options().dtype(at::kBool));
  return outputs.masked_fill(all, 0).sum();
}

TensorsByName BroughtTo(c10::Device device, const TensorsByName& tensors) {
  TensorsByName there;
  for (const auto& [name, tensor] : tensors)
    there[name] = PlaceOn(device, tensor);
  return there;
}

bool IsLowPrecision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ||
         tensor.scalar_type() == at::kHalf;
}

// But for targets, which are what the data set gives.
LossArguments InFloat(LossArguments arguments) {
  if (IsLowPrecision(arguments.outputs)) {
    arguments.outputs = arguments.outputs.to(at::kFloat);
  }
  for (auto& each : arguments.further_outputs) {
    if (IsLowPrecision(each.second)) each.second = each.second.to(at::kFloat);
  }
  return arguments;
}

}  // namespace

LossFunction::LossFunction(Loss loss, Weight weight)
    : weight_(std::move(weight)) {
  if (loss == nullptr) return;
  loss_ = [loss = std::move(loss)](const LossArguments& arguments) {
    return loss(arguments.outputs, arguments.targets);
  };
}

LossResult LossFunction::operator()(const LossArguments& arguments) const {
  LossResult result =
      takes_any_precision_ ? loss_(arguments) : loss_(InFloat(arguments));
  if (result.sums.defined()) {
    CheckSums(result.sums);
    // Without a weight the count is asked for at once.
    if (weight_ || !HasCount(result.sums)) return result;
    result.score = ReadScores({{result.score, result.sums}}).front();
    result.sums.reset();
  }
  if (result.score.count == 0) result.score.loss_sum = 0;
  return result;
}

LossArguments ArgumentsOf(const at::Tensor& outputs,
                          const TensorsByName& further_outputs,
                          const LossTargets& targets) {
  TORCH_CHECK(targets.targets.defined() || !targets.further.empty(),
              "the batch has no targets");
  const c10::Device device = outputs.device();
  LossArguments arguments;
  arguments.outputs = outputs;
  arguments.further_outputs = BroughtTo(device, further_outputs);
  if (targets.targets.defined()) {
    arguments.targets = PlaceOn(device, targets.targets);
  }
  arguments.further_targets = BroughtTo(device, targets.further);
  return arguments;
}

at::Tensor WeighLoss(const at::Tensor& loss, double weight,
                     const at::Tensor& outputs,
                     const TensorsByName& further_outputs) {
  if (weight == 1) return loss;
  if (weight != 0) return loss.mul(weight);
  at::Tensor nothing = NothingOf(outputs);
  for (const auto& each : further_outputs) {
    if (!each.second.requires_grad()) continue;
    nothing = nothing.add(NothingOf(each.second));
  }
  return nothing;
}

}  // namespace tandem
