#include "parallel/strategy/replicated.h"

#include <torch/nn/module.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/mesh/mesh.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "core/model/make_layers.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/strategy/score_numbers.h"
#include "parallel/strategy/trait_checks.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Replicated>> Replicated::Create(
    LayerList layers, LossFunction loss, const ReplicatedOptions& options,
    Communicator& data) {
  TANDEM_RETURN_IF_ERROR(CheckUpdateOptions(options));
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
  TANDEM_RETURN_IF_ERROR(CheckLayerNames(layers));
  const std::vector<LayerLinks> links = LinksOf(layers);
  TANDEM_RETURN_IF_ERROR(CheckSkips(links, loss_.names().outputs));
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
  TANDEM_RETURN_IF_ERROR(Apply(NamedTraits(layers), &ddp));
  // With one rank there is nobody to disagree with.
  if (data_.size() == 1) ddp.find_unused_parameters = true;
  TANDEM_ASSIGN_OR_RETURN(
      ddp_, MakeDistributedDataParallel(std::move(layers), data_, ddp));
  if (options_.hook) {
    TANDEM_RETURN_IF_ERROR(ddp_->register_comm_hook(options_.hook));
  }
  TANDEM_ASSIGN_OR_RETURN(
      update_, ParameterUpdate::Create(options_, ddp_->flat_buffers()));
  if (options_.averaging) {
    TANDEM_ASSIGN_OR_RETURN(
        averager_, PeriodicParameterAverager::Create(*options_.averaging));
  }
  TANDEM_ASSIGN_OR_RETURN(sums_, data_.NewBuffer(kScoreNumbers, at::kDouble));
  return absl::OkStatus();
}

absl::Status Replicated::Apply(const TraitsByName& traits,
                               DistributedDataParallelOptions* ddp) const {
  TANDEM_ASSIGN_OR_RETURN(const Mesh mesh,
                          Mesh::Create(data_.size(), /*pipe=*/1));
  TANDEM_RETURN_IF_ERROR(CheckTraits(traits, mesh));
  for (const auto& [name, its] : traits) {
    if (its.reduces_over(kDataAxis)) continue;
    ddp->parameters_to_ignore.push_back(name);
  }
  ddp->optimizer_group = options_.optimizer_group;
  if (ddp->optimizer_group) return absl::OkStatus();
  ddp->optimizer_group = [traits](const std::string& name) {
    return TraitsOf(traits, name).optimizer_group;
  };
  return absl::OkStatus();
}

std::string Replicated::name() const {
  if (data_.size() > 1) return "ddp";
  return options_.device.has_value() ? "single" : "model_parallel";
}

// Every rank sees the same averaged gradients, and must clip them alike.
absl::Status Replicated::Clip() {
  update_->ClipValues();
  if (options_.clip_norm == 0) return absl::OkStatus();
  const ClipNormOptions norm = {options_.clip_norm, options_.clip_norm_type,
                                options_.error_if_nonfinite};
  for (const FlatBufferList& part :
       {ddp_->averaged_flat_buffers(), ddp_->ignored_flat_buffers()}) {
    TANDEM_RETURN_IF_ERROR(ClipGradientNorm(part, norm).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<Score> Replicated::Compute(const Batch& batch) {
  if (batch.size == 0) {
    return absl::InvalidArgumentError(
        "a training step needs at least one sample on every rank");
  }
  SetTraining(ddp_->module(), true);
  ddp_->ZeroGrad();
  absl::StatusOr<Score> score = ForwardBackward(batch);
  if (!score.ok()) return Annotate(score.status(), "training step");
  halves_.EndFirst();
  return score;
}

absl::Status Replicated::Finish(std::optional<double> learning_rate) {
  if (learning_rate.has_value()) {
    TANDEM_RETURN_IF_ERROR(
        update_->Step(*learning_rate, [&] { return Clip(); }));
  }
  TANDEM_RETURN_IF_ERROR(MakeAlike());
  ++steps_;
  return absl::OkStatus();
}

bool Replicated::averages_gradients() const {
  return !averager_ || averager_->in_warmup();
}

// Whether the step under way sends anything.
bool Replicated::communicates() const {
  return averages_gradients() || averager_->averages_now();
}

// After an update: what the ranks have each for themselves.
absl::Status Replicated::MakeAlike() {
  alike_ = averages_gradients();
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
  absl::StatusOr<Score> score = ComputeGradients(batch);
  if (score.ok()) TANDEM_RETURN_IF_ERROR(Update(learning_rate));
  return score;
}

absl::StatusOr<Score> Replicated::ComputeGradients(const Batch& batch) {
  TANDEM_RETURN_IF_ERROR(halves_.CheckFirst());
  absl::StatusOr<Score> score = Compute(batch);
  // Others would wait for this rank in the next collective.
  if (!score.ok()) data_.Abort(score.status());
  return score;
}

absl::Status Replicated::Update(double learning_rate) {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  const absl::Status done = Finish(learning_rate);
  if (!done.ok()) data_.Abort(done);
  return done;
}

absl::Status Replicated::SkipUpdate() {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  const absl::Status done = Finish(std::nullopt);
  if (!done.ok()) data_.Abort(done);
  return done;
}

}  // namespace tandem
