// Averaging of parameters (post-local SGD, DiLoCo): replicas train apart, and
// every so many steps their parameters become what all of them come to.

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "parallel/ddp/parameter_averaging.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

// Own values of a replica, put aside while its parameters and buffers are what
// all replicas come to: copies of some flat buffers' values and of other
// tensors, all of which must outlive it. Throws c10::Error.
class OwnValues {
 public:
  OwnValues(FlatBufferList buffers, std::vector<at::Tensor> others);

  // Puts them back.
  void Restore() const;

 private:
  FlatBufferList buffers_;
  std::vector<at::Tensor> others_;
  std::vector<at::Tensor> values_, copies_;  // of both, in their order
};

OwnValues::OwnValues(FlatBufferList buffers, std::vector<at::Tensor> others)
    : buffers_(std::move(buffers)), others_(std::move(others)) {
  const at::NoGradGuard no_grad;
  const MemoryCategoryScope category(MemoryCategory::kTemporaries);
  // The host's memory: a device may be full.
  const auto kept = [](const at::Tensor& tensor) {
    return tensor.to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false,
                     /*copy=*/true);
  };
  for (const FlatBuffer* buffer : buffers_) {
    values_.push_back(kept(buffer->values()));
  }
  for (const at::Tensor& each : others_) copies_.push_back(kept(each));
}

void OwnValues::Restore() const {
  const at::NoGradGuard no_grad;
  size_t next = 0;
  for (const FlatBuffer* buffer : buffers_) {
    buffer->values().copy_(values_[next++]);
    buffer->CountWrite();
  }
  for (size_t i = 0; i < others_.size(); ++i) others_[i].copy_(copies_[i]);
}

class AveragingPart : public StepPart {
 public:
  AveragingPart(const MeshModel& model,
                const PeriodicParameterAverager& averager)
      : model_(model), averager_(averager) {}

  absl::Status Start() override;
  void Plan(StepContext& step) const override;
  absl::Status Begin(StepContext& step) override;
  absl::Status Update(const StepContext& step, int stage) override;
  absl::Status End(StepContext& step) override;

  void ResumeAt(int64_t steps) override { averager_.set_step(steps); }
  absl::Status ShowAlike() override;
  void AfterLoad() override;

  NamedTensors State(int stage) const override;
  bool HasState(const std::string& name) const override {
    return model_.options.averaging->outer && OuterOptimizer::Has(name);
  }
  absl::Status CheckState(int stage, const StoredTensors& state) const override;
  absl::Status LoadState(int stage, const StoredTensors& state) override;

 private:
  // State of one stage.
  struct Kept {
    std::optional<OuterOptimizer> outer;  // of averaged parameters
    std::optional<OwnValues> own;         // that are aside
  };

  Kept& At(int stage) { return kept_[static_cast<size_t>(stage)]; }
  const Kept& At(int stage) const { return kept_[static_cast<size_t>(stage)]; }
  absl::Status ShowMean(int stage);
  absl::Status ShowOwn(int stage);

  const MeshModel& model_;
  PeriodicParameterAverager averager_;
  std::vector<Kept> kept_;   // by stage
  bool alike_ = true;        // replicas are, at the moment
  bool shows_mean_ = false;  // which is why they are
};

absl::Status AveragingPart::Start() {
  kept_.resize(model_.stages.size());
  if (!model_.options.averaging->outer) return absl::OkStatus();
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (model_.stages[i] == nullptr) continue;
    kept_[i].outer.emplace(*model_.options.averaging->outer,
                           model_.stages[i]->parameters().averaged());
  }
  return absl::OkStatus();
}

void AveragingPart::Plan(StepContext& step) const {
  step.averages_gradients = averager_.in_warmup();
  step.ends_alike = step.averages_gradients || averager_.averages_now();
}

// With each replica's own values, where they are the mean of all.
absl::Status AveragingPart::Begin(StepContext& step) {
  if (std::exchange(shows_mean_, false)) {
    alike_ = false;
    TANDEM_RETURN_IF_ERROR(
        model_.OnStages([&](int stage) { return ShowOwn(stage); }));
  }
  if (step.averages_gradients) return absl::OkStatus();
  for (Kept& each : kept_) {
    if (each.outer.has_value()) each.outer->Begin();
  }
  return absl::OkStatus();
}

// Parameters that are alike in all replicas become their mean, and then what
// the outer optimizer, if there is one, makes of it.
absl::Status AveragingPart::Update(const StepContext& step, int stage) {
  if (!averager_.averages_now()) return absl::OkStatus();
  const TrainedStage& trained = model_.stage(stage);
  if (trained.replicas() != nullptr) {
    TANDEM_RETURN_IF_ERROR(AverageParameters(trained.parameters().averaged(),
                                             *trained.replicas()));
  }
  if (At(stage).outer.has_value()) At(stage).outer->Step();
  return absl::OkStatus();
}

absl::Status AveragingPart::End(StepContext& step) {
  alike_ = step.ends_alike;
  averager_.set_step(averager_.step() + 1);
  return absl::OkStatus();
}

absl::Status AveragingPart::ShowAlike() {
  if (alike_) return absl::OkStatus();
  alike_ = shows_mean_ = true;
  return model_.OnStages([&](int stage) { return ShowMean(stage); });
}

// Values are the replicas' mean from then on, and buffers the first one's.
absl::Status AveragingPart::ShowMean(int stage) {
  TrainedStage& trained = model_.stage(stage);
  if (trained.replicas() == nullptr) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    At(stage).own.emplace(trained.parameters().averaged(), trained.buffers());
  }));
  TANDEM_RETURN_IF_ERROR(
      AverageParameters(trained.parameters().averaged(), *trained.replicas()));
  return trained.ShareBuffers();
}

absl::Status AveragingPart::ShowOwn(int stage) {
  std::optional<OwnValues>& own = At(stage).own;
  if (!own.has_value()) return absl::OkStatus();
  const absl::Status shown = CatchTorch([&] { own->Restore(); });
  own.reset();
  return shown;
}

// Loaded values are all replicas'.
void AveragingPart::AfterLoad() {
  for (Kept& each : kept_) each.own.reset();
  shows_mean_ = false;
  alike_ = true;
}

NamedTensors AveragingPart::State(int stage) const {
  if (!At(stage).outer.has_value()) return {};
  return model_.stage(stage).parameters().WithoutCopies(
      At(stage).outer->State());
}

absl::Status AveragingPart::CheckState(int stage,
                                       const StoredTensors& state) const {
  if (!At(stage).outer.has_value()) return absl::OkStatus();
  return At(stage).outer->CheckState(state);
}

absl::Status AveragingPart::LoadState(int stage, const StoredTensors& state) {
  if (!At(stage).outer.has_value()) return absl::OkStatus();
  return At(stage).outer->LoadState(state);
}

absl::StatusOr<std::unique_ptr<StepPart>> MakeAveraging(MeshModel& model) {
  if (!model.options.averaging) return std::unique_ptr<StepPart>();
  TANDEM_ASSIGN_OR_RETURN(
      const PeriodicParameterAverager averager,
      PeriodicParameterAverager::Create(*model.options.averaging));
  return std::make_unique<AveragingPart>(model, averager);
}

std::string OuterText(const MeshStrategyOptions& options) {
  const std::optional<OuterOptimizerOptions>& outer = options.averaging->outer;
  if (!outer.has_value()) return "";
  return absl::StrCat(", outer learning rate ",
                      NumberText(outer->learning_rate), " and momentum ",
                      NumberText(outer->momentum));
}

void DescribeAveraging(const MeshStrategyOptions& options,
                       NamedValues& values) {
  values["averaging"] =
      options.averaging.has_value()
          ? absl::StrCat("every ", options.averaging->period, " steps after ",
                         options.averaging->warmup_steps, OuterText(options))
          : "off";
}

int AveragingTensors(const MeshStrategyOptions& options, int replicas) {
  if (!options.averaging) return 0;
  // A replica's own values while it shows the mean: OwnValues.
  int further = options.devices.front().is_cpu() ? 1 : 0;
  if (options.averaging->outer) {
    further += options.averaging->outer->momentum == 0 ? 1 : 2;
  }
  return further;
}

constexpr const char* kAveragingFlags[] = {
    "average_parameters_every", "outer_learning_rate", "outer_momentum"};

}  // namespace

constexpr StepPartRow kAveragingRow = {
    "averaging",       MakeAveraging,    DescribeAveraging,
    /*check=*/nullptr,
    /*exclusions=*/{}, AveragingTensors, kAveragingFlags};

}  // namespace tandem
