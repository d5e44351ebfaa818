#include "parallel/replicated.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/layer_list.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "parallel/gradient_clipping.h"
#include "parallel/model_state.h"
#include "parallel/option_checks.h"

namespace tandem {
namespace {

// What every rank adds to: score, then a one for each parameter used. Doubles
// hold counts exactly.
std::vector<double> Pack(const Score& score, const FlatBuffers& flat) {
  std::vector<double> packed = {score.loss_sum,
                                static_cast<double>(score.correct),
                                static_cast<double>(score.count)};
  for (const auto& buffer : flat) {
    for (size_t i = 0; i < buffer->slots().size(); ++i) {
      packed.push_back(buffer->has_gradient(i));
    }
  }
  return packed;
}

Score Unpack(const at::Tensor& sums, const FlatBuffers& flat) {
  const double* next = sums.const_data_ptr<double>();
  Score score;
  score.loss_sum = *next++;
  score.correct = static_cast<int64_t>(*next++);
  score.count = static_cast<int64_t>(*next++);
  for (const auto& buffer : flat) {
    for (size_t i = 0; i < buffer->slots().size(); ++i) {
      buffer->set_has_gradient(i, *next++ > 0);
    }
  }
  return score;
}

std::vector<at::Tensor> Values(const NamedTensors& tensors) {
  std::vector<at::Tensor> values;
  for (const auto& each : tensors) values.push_back(each.second);
  return values;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Replicated>> Replicated::Create(
    LayerList layers, LossFunction loss, const ReplicatedOptions& options,
    Communicator& data) {
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_norm", options.clip_norm));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_value", options.clip_value));
  auto strategy = std::unique_ptr<Replicated>(
      new Replicated(std::move(layers), std::move(loss), options, data));
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { return strategy->Prepare(); }));
  return strategy;
}

Replicated::Replicated(LayerList layers, LossFunction loss,
                       const ReplicatedOptions& options, Communicator& data)
    : layers_(std::move(layers)),
      loss_(std::move(loss)),
      options_(options),
      data_(data) {}

absl::Status Replicated::Prepare() {
  for (const Layer& layer : layers_) {
    if (layer.module != nullptr) layer.module->to(options_.device);
  }
  parameters_ = NamedParameters(layers_);
  buffers_ = NamedBuffers(layers_);
  flat_ = MakeFlatBuffers(parameters_);
  if (flat_.empty()) {
    return absl::InvalidArgumentError(
        "the model has no parameter that requires a gradient: nothing to "
        "train");
  }
  TANDEM_ASSIGN_OR_RETURN(optimizer_, MakeOptimizer(options_.optimizer, flat_));
  return CopyFromRank0();
}

absl::Status Replicated::CopyFromRank0() {
  if (data_.size() == 1) return absl::OkStatus();
  NamedTensors model = parameters_;
  model.insert(model.end(), buffers_.begin(), buffers_.end());
  TANDEM_RETURN_IF_ERROR(CheckSameModel(model, data_));
  // Trained parameters lie in the flat buffers, which need no copies.
  std::vector<at::Tensor> others = Values(buffers_);
  for (const auto& each : parameters_) {
    if (!each.second.requires_grad()) others.push_back(each.second);
  }
  for (const auto& buffer : flat_) {
    TANDEM_RETURN_IF_ERROR(data_.Broadcast(buffer->values(), /*root=*/0));
  }
  return BroadcastFromRank0(others, data_);
}

std::string Replicated::name() const {
  return data_.size() == 1 ? "single" : "ddp";
}

LossResult Replicated::Loss(const Batch& batch) const {
  const at::Tensor outputs = Forward(layers_, batch.inputs.to(options_.device));
  return loss_(outputs, batch.targets.to(options_.device));
}

Score Replicated::ForwardBackward(const Batch& batch) {
  for (const auto& buffer : flat_) buffer->ZeroGrad();
  const LossResult result = Loss(batch);
  result.loss.backward();
  return result.score;
}

absl::Status Replicated::SumScoreAndUse(Score* score) {
  if (data_.size() == 1) return absl::OkStatus();
  const at::Tensor sums = at::tensor(Pack(*score, flat_), at::kDouble);
  TANDEM_RETURN_IF_ERROR(data_.AllReduceSum(sums));
  *score = Unpack(sums, flat_);
  return absl::OkStatus();
}

absl::Status Replicated::AverageGradients() {
  if (data_.size() == 1) return absl::OkStatus();
  for (const auto& buffer : flat_) {
    // Scaled before it is summed, and by a factor, as PyTorch does it.
    buffer->grads().mul_(1.0 / data_.size());
    TANDEM_RETURN_IF_ERROR(data_.AllReduceSum(buffer->grads()));
  }
  return absl::OkStatus();
}

void Replicated::Update(double learning_rate) {
  if (options_.clip_value > 0) ClipGradientValue(flat_, options_.clip_value);
  if (options_.clip_norm > 0) ClipGradientNorm(flat_, options_.clip_norm);
  optimizer_->Step(learning_rate);
}

absl::StatusOr<Score> Replicated::TrainStep(const Batch& batch,
                                            double learning_rate) {
  if (batch.size == 0) {
    return absl::InvalidArgumentError(
        "a training step needs at least one sample on every rank");
  }
  SetTraining(layers_, true);
  TANDEM_ASSIGN_OR_RETURN(
      Score score,
      CatchTorchOr([&] { return ForwardBackward(batch); }, "training step"));
  for (const auto& buffer : flat_) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  TANDEM_RETURN_IF_ERROR(SumScoreAndUse(&score));
  TANDEM_RETURN_IF_ERROR(AverageGradients());
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { Update(learning_rate); }, "optimizer step"));
  // DistributedDataParallel does this before each forward: the same, but
  // evaluation in between sees rank 0's buffers too, without a collective.
  TANDEM_RETURN_IF_ERROR(BroadcastFromRank0(Values(buffers_), data_));
  return score;
}

absl::StatusOr<Score> Replicated::Evaluate(const Batch& batch) {
  if (batch.size == 0) return Score{};
  SetTraining(layers_, false);
  at::NoGradGuard no_grad;
  return CatchTorchOr([&] { return Loss(batch).score; }, "evaluation");
}

absl::StatusOr<Score> Replicated::Sum(const Score& score) {
  if (data_.size() == 1) return score;
  const at::Tensor sums = at::tensor(Pack(score, {}), at::kDouble);
  TANDEM_RETURN_IF_ERROR(data_.AllReduceSum(sums));
  return Unpack(sums, {});
}

NamedTensors Replicated::OptimizerState() const { return optimizer_->State(); }

absl::Status Replicated::LoadModelState(const NamedTensors& state) {
  NamedTensors model = parameters_;
  model.insert(model.end(), buffers_.begin(), buffers_.end());
  return CopyModelState(state, model);
}

absl::Status Replicated::LoadOptimizerState(const NamedTensors& state) {
  return optimizer_->LoadState(state);
}

}  // namespace tandem
