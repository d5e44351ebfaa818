#include "core/loss/loss.h"

#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <glog/logging.h>

#include <cstdint>

#include "core/device/host_memory.h"
#include "core/device/placement.h"

namespace tandem {

void CheckSums(const at::Tensor& sums) {
  TORCH_CHECK(sums.scalar_type() == at::kDouble && sums.dim() == 1 &&
                  (sums.size(0) == 2 || sums.size(0) == 3),
              "the sums of a loss's score must be doubles, loss_sum, correct "
              "and, if it is not known, count, not ",
              sums.scalar_type(), " ", sums.sizes());
}

bool HasCount(const at::Tensor& sums) { return sums.size(0) == 3; }

DeferredScore DeferScore(const Score& known, const at::Tensor& sums) {
  CheckSums(sums);
  const DeferredScore score = {known, sums};
  if (!sums.device().is_cpu()) return score;
  return {ReadScores({score}).front()};
}

Score FullScore(const DeferredScore& score, const double*& numbers) {
  Score full = score.known;
  if (!score.sums.defined()) return full;
  full.loss_sum += *numbers++;
  full.correct += static_cast<int64_t>(*numbers++);
  if (HasCount(score.sums)) full.count += static_cast<int64_t>(*numbers++);
  if (full.count == 0) full.loss_sum = 0;
  return full;
}

std::vector<Score> ReadScores(const std::vector<DeferredScore>& scores) {
  std::vector<at::Tensor> deferred;
  for (const DeferredScore& each : scores) {
    if (each.sums.defined()) deferred.push_back(each.sums);
  }
  const std::vector<double> numbers = ReadNumbers(deferred);
  const double* next = numbers.data();
  std::vector<Score> read;
  for (const DeferredScore& each : scores) {
    read.push_back(FullScore(each, next));
  }
  return read;
}

namespace {

at::Tensor ZeroLoss(const at::Tensor& outputs) {
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

LossFunction LossFunction::EvaluatedBy(LossFunction trained,
                                       LossFunction evaluation) {
  CHECK(trained.names_.outputs == evaluation.names_.outputs &&
        trained.names_.targets == evaluation.names_.targets)
      << "what is evaluated takes other tensors than what is trained";
  CHECK_EQ(trained.weight_ == nullptr, evaluation.weight_ == nullptr)
      << "what is evaluated weighs otherwise than what is trained";
  trained.evaluation_ =
      std::make_shared<const LossFunction>(std::move(evaluation));
  return trained;
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

LossArguments MakeLossArguments(const at::Tensor& outputs,
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
  at::Tensor nothing = ZeroLoss(outputs);
  for (const auto& each : further_outputs) {
    if (!each.second.requires_grad()) continue;
    nothing = nothing.add(ZeroLoss(each.second));
  }
  return nothing;
}

}  // namespace tandem
