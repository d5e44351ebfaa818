#include "parallel/replicated.h"

#include <torch/nn/module.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/batch_inputs.h"
#include "core/fault_point.h"
#include "core/layer_links.h"
#include "core/layer_list.h"
#include "core/loss_terms.h"
#include "core/memory_category.h"
#include "core/sample_scope.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "core/trace.h"
#include "parallel/gradient_clipping.h"
#include "parallel/microbatches.h"
#include "parallel/option_checks.h"
#include "parallel/score_numbers.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Replicated>> Replicated::Create(
    LayerList layers, LossFunction loss, const ReplicatedOptions& options,
    Communicator& data) {
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_norm", options.clip_norm));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_value", options.clip_value));
  TANDEM_RETURN_IF_ERROR(
      CheckPositive("clip_norm_type", options.clip_norm_type));
  if (options.accumulation_steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("accumulation_steps must be at least 1, but ",
                     options.accumulation_steps, " was given"));
  }
  auto strategy = std::unique_ptr<Replicated>(
      new Replicated(std::move(loss), options, data));
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { return strategy->Prepare(std::move(layers)); }));
  return strategy;
}

Replicated::Replicated(LossFunction loss, const ReplicatedOptions& options,
                       Communicator& data)
    : loss_(std::move(loss)), options_(options), data_(data) {}

absl::Status Replicated::Prepare(LayerList layers) {
  const std::vector<LayerLinks> links = LinksOf(layers);
  TANDEM_RETURN_IF_ERROR(CheckSkips(links));
  further_inputs_ = FurtherInputs(links);
  for (const Layer& layer : layers) {
    if (layer.module == nullptr || !options_.device.has_value()) continue;
    const MemoryCategoryScope scope(MemoryCategory::kParameters);
    layer.module->to(*options_.device);
  }
  parameters_ = NamedParameters(layers);
  buffers_ = NamedBuffers(layers);
  DistributedDataParallelOptions ddp = options_.ddp;
  ddp.broadcast_buffers = false;  // TrainStep does it
  // With one rank there is nobody to disagree with.
  if (data_.size() == 1) ddp.find_unused_parameters = true;
  TANDEM_ASSIGN_OR_RETURN(
      ddp_, MakeDistributedDataParallel(std::move(layers), data_, ddp));
  if (options_.hook) {
    TANDEM_RETURN_IF_ERROR(ddp_->register_comm_hook(options_.hook));
  }
  std::vector<OptimizerOptions> groups = {options_.optimizer};
  groups.insert(groups.end(), options_.further_optimizers.begin(),
                options_.further_optimizers.end());
  TANDEM_ASSIGN_OR_RETURN(
      optimizer_, GroupedOptimizer::Create(groups, ddp_->flat_buffers()));
  if (options_.averaging) {
    TANDEM_ASSIGN_OR_RETURN(
        averager_, PeriodicParameterAverager::Create(*options_.averaging));
  }
  TANDEM_ASSIGN_OR_RETURN(sums_, data_.NewBuffer(kScoreNumbers, at::kDouble));
  return absl::OkStatus();
}

std::string Replicated::name() const {
  if (data_.size() > 1) return "ddp";
  return options_.device.has_value() ? "single" : "model_parallel";
}

absl::StatusOr<LossResult> Replicated::Loss(const Batch& batch) {
  const MemoryCategoryScope scope(MemoryCategory::kActivations);
  at::Tensor inputs = batch.inputs;
  TANDEM_ASSIGN_OR_RETURN(Skips further, NamedInputs(batch, further_inputs_));
  if (options_.device.has_value()) {
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
      inputs = inputs.to(*options_.device);
      for (auto& each : further) each.second = each.second.to(*options_.device);
    }));
  }
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                          ddp_->Forward(inputs, further));
  return CatchTorchOr(
      [&] { return loss_(outputs, batch.targets.to(outputs.device())); });
}

absl::StatusOr<Score> Replicated::ForwardBackward(const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(batch, EvenSizes(batch.size, options_.accumulation_steps)));
  const bool sums = communicates();
  Score score;
  std::vector<LossSums::Part> added;
  int64_t first = data_.rank() * batch.size;  // sample of the global batch
  for (const Batch& part : parts) {
    const bool last = &part == &parts.back();
    std::optional<NoSyncGuard> no_sync;
    if (!last || !averages_gradients()) no_sync.emplace(ddp_->no_sync());
    LossResult result;
    LossTerms terms;
    {
      const TraceScope scope("compute", "forward");
      const LossTerms::Scope collecting(&terms);
      const SampleScope samples({options_.seed, steps_, first});
      TANDEM_ASSIGN_OR_RETURN(result, Loss(part));
    }
    first += part.size;
    score += result.score;
    if (last) TANDEM_RETURN_IF_ERROR(FaultPoint("after_forward"));
    // On its way while backward runs.
    if (last && sums) TANDEM_RETURN_IF_ERROR(StartSumOfScores(score));
    const double weight =
        static_cast<double>(part.size) / static_cast<double>(batch.size);
    const auto number = &part - parts.data();
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
      for (const LossTerms::Term& each : terms.terms()) {
        result.loss =
            result.loss.add(each.loss.to(result.loss.device()).reshape({}));
        added.push_back(
            {each.name, data_.rank() * options_.accumulation_steps + number,
             each.loss.item<double>() * weight / (sums ? data_.size() : 1)});
      }
      if (parts.size() > 1) result.loss = result.loss.mul(weight);
    }));
    TANDEM_RETURN_IF_ERROR(ddp_->Backward(result.loss));
  }
  TANDEM_RETURN_IF_ERROR(
      added_losses_.Sum(added, data_.size() * options_.accumulation_steps,
                        sums ? &data_ : nullptr));
  return sums ? SumOfScores() : score;
}

absl::Status Replicated::StartSumOfScores(const Score& score) {
  ToNumbers(score, sums_.mutable_data_ptr<double>());
  TANDEM_ASSIGN_OR_RETURN(
      summing_, data_.StartAllReduceSum(sums_, 1, [] { return "the loss"; }));
  return absl::OkStatus();
}

absl::StatusOr<Score> Replicated::SumOfScores() {
  TANDEM_RETURN_IF_ERROR(summing_.Wait());
  return ScoreOf(sums_.const_data_ptr<double>());
}

// Every rank sees the same averaged gradients, and must clip them alike.
absl::Status Replicated::Clip() {
  if (options_.clip_value > 0) {
    ClipGradientValue(ddp_->flat_buffers(), options_.clip_value);
  }
  if (options_.clip_norm == 0) return absl::OkStatus();
  const ClipNormOptions norm = {options_.clip_norm, options_.clip_norm_type,
                                options_.error_if_nonfinite};
  for (const FlatBufferList& part :
       {ddp_->averaged_flat_buffers(), ddp_->ignored_flat_buffers()}) {
    TANDEM_RETURN_IF_ERROR(ClipGradientNorm(part, norm).status());
  }
  return absl::OkStatus();
}

absl::Status Replicated::Update(double learning_rate) {
  for (const auto& buffer : ddp_->flat_buffers()) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  TANDEM_RETURN_IF_ERROR(FaultPoint("before_optimizer"));
  TraceScope scope("compute", "optimizer");
  return CatchTorch(
      [&]() -> absl::Status {
        TANDEM_RETURN_IF_ERROR(Clip());
        optimizer_->Step(learning_rate);
        return absl::OkStatus();
      },
      "optimizer step");
}

absl::StatusOr<Score> Replicated::Step(const Batch& batch,
                                       double learning_rate) {
  if (batch.size == 0) {
    return absl::InvalidArgumentError(
        "a training step needs at least one sample on every rank");
  }
  SetTraining(ddp_->module(), true);
  ddp_->ZeroGrad();
  absl::StatusOr<Score> score = ForwardBackward(batch);
  if (!score.ok()) return Annotate(score.status(), "training step");
  const bool averaged = averages_gradients();
  TANDEM_RETURN_IF_ERROR(Update(learning_rate));
  TANDEM_RETURN_IF_ERROR(MakeAlike(averaged));
  ++steps_;
  return score;
}

bool Replicated::averages_gradients() const {
  return !averager_ || averager_->in_warmup();
}

// Whether the step under way sends anything.
bool Replicated::communicates() const {
  return averages_gradients() || averager_->averages_now();
}

// After an update: what the ranks have each for themselves.
absl::Status Replicated::MakeAlike(bool gradients_were_averaged) {
  alike_ = gradients_were_averaged;
  if (averager_) {
    alike_ = alike_ || averager_->averages_now();
    TANDEM_RETURN_IF_ERROR(
        averager_->AfterStep(ddp_->averaged_flat_buffers(), data_));
  }
  return alike_ ? BroadcastBuffers() : absl::OkStatus();
}

absl::Status Replicated::BroadcastBuffers() {
  if (!options_.ddp.broadcast_buffers) return absl::OkStatus();
  return ddp_->BroadcastBuffers();
}

void Replicated::ResumeAt(int64_t steps) {
  steps_ = steps;
  if (averager_) averager_->set_step(steps);
}

absl::Status Replicated::Synchronise() {
  if (alike_) return absl::OkStatus();
  alike_ = true;
  TANDEM_RETURN_IF_ERROR(
      AverageParameters(ddp_->averaged_flat_buffers(), data_));
  return BroadcastBuffers();
}

absl::StatusOr<Score> Replicated::TrainStep(const Batch& batch,
                                            double learning_rate) {
  absl::StatusOr<Score> score = Step(batch, learning_rate);
  // Others would wait for this rank in the next collective.
  if (!score.ok()) data_.Abort(score.status());
  return score;
}

}  // namespace tandem
