// Loss scale: backward begins from a loss that is scaled, so that fp16 holds
// its gradients; they are unscaled, and a step of which one is not finite, on
// whatever rank, updates nothing on any.

#include <ATen/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "core/mesh/mesh.h"
#include "core/precision/loss_scale.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/grad_scaler.h"
#include "parallel/optim/parameter_update.h"
#include "parallel/schedule/schedule.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

// In so many steps replicas agree on what they know: the first ones may choose
// their kernels, of which not all say it.
constexpr int kAgreements = 4;

class LossScalePart : public StepPart {
 public:
  // `ranks`: all, which agree on each step; null: there is one.
  LossScalePart(const MeshModel& model, const LossScale& scale,
                Communicator* ranks)
      : model_(model),
        scale_(scale, model.options.devices),
        scales_(!model.options.grad_scaler->constant || scale.scale() != 1),
        asks_(
            !scales_ && !model.options.make_hook &&
            absl::c_all_of(model.options.devices,
                           [](c10::Device device) { return device.is_cpu(); })),
        ranks_(ranks) {}

  absl::Status Start() override;
  void Plan(StepContext& step) const override { step.updates_at_once = false; }

  absl::Status Begin(StepContext& step) override {
    scale_.Begin();
    for (size_t i = 0; i < model_.options.devices.size(); ++i) {
      step.gradients.loss_scales.push_back(scale_.scale(i));
    }
    return absl::OkStatus();
  }

  absl::Status AfterBackward(StepContext& step) override;
  absl::Status BeforeUpdate(StepContext& step) override;

  void AddNumbers(const PendingStep& step,
                  std::vector<at::Tensor>* numbers) const override {
    if (step.found_inf.defined()) numbers->push_back(step.found_inf);
  }

  absl::Status Read(PendingStep& step, const double*& numbers,
                    StepScore* score) override {
    score->scaled = step.scaled;
    if (!step.found_inf.defined()) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(scale_.NoteVerdict(*numbers++ != 0));
    score->scaled = ScaledStep::After(scale_.known());
    return absl::OkStatus();
  }

  LossScale* loss_scale() override { return &scale_.known(); }

 private:
  absl::Status Look(const StepContext& step, int stage, size_t device);
  absl::StatusOr<std::vector<bool>> AgreeOnKnown(int stage) const;
  absl::StatusOr<std::vector<FiniteCheck>> Checks(int stage, bool averaged);
  absl::Status ReadVerdict(StepContext& step);

  const MeshModel& model_;
  DeviceLossScale scale_;
  const bool scales_;  // by another number than 1
  // Asks functions whether the gradients that they put are finite: what a
  // communication hook makes of these is another matter.
  const bool asks_;
  Communicator* const ranks_;
  // By stage, of which gradients all replicas knew it, when they agreed last.
  struct Known {
    int agreed = 0;  // how often
    std::vector<bool> slots;
  };
  std::vector<Known> known_;
};

absl::Status LossScalePart::Start() {
  known_.resize(model_.stages.size());
  if (!asks_) return absl::OkStatus();
  return model_.OnStages([this](int stage) {
    for (FlatBuffer* buffer : model_.stage(stage).parameters().all()) {
      buffer->AskWhetherFinite();
    }
    return absl::OkStatus();
  });
}

// By slot of all the stage's buffers, whether all replicas know of the step's
// gradient that it is finite.
absl::StatusOr<std::vector<bool>> LossScalePart::AgreeOnKnown(int stage) const {
  std::vector<float> unknown;  // to how many
  for (const FlatBuffer* buffer : model_.stage(stage).parameters().all()) {
    for (size_t i = 0; i < buffer->slots().size(); ++i) {
      unknown.push_back(buffer->is_known_finite(i) ? 0 : 1);
    }
  }
  Communicator* const replicas = model_.groups.data(stage);
  if (replicas != nullptr && !unknown.empty()) {
    TANDEM_RETURN_IF_ERROR(replicas->AllReduceSum(
        at::from_blob(unknown.data(), {static_cast<int64_t>(unknown.size())}),
        [] { return "which gradients are known to be finite"; }));
  }
  std::vector<bool> known;
  for (const float replicas_without : unknown) {
    known.push_back(replicas_without == 0);
  }
  return known;
}

// What this replica looks at of a stage's gradients, for all ranks have one
// verdict: of its own, all but what it knows. Averages of which every replica
// knows as a rule that its own part is finite are finite unless one does not
// know it in this step, who then looks at all of it. Of the others each looks
// at a share.
absl::StatusOr<std::vector<FiniteCheck>> LossScalePart::Checks(int stage,
                                                               bool averaged) {
  Known& known = known_[static_cast<size_t>(stage)];
  if (averaged && known.agreed < kAgreements) {
    TANDEM_ASSIGN_OR_RETURN(known.slots, AgreeOnKnown(stage));
    ++known.agreed;
  }
  std::vector<FiniteCheck> checks;
  for (const FlatBuffer* buffer : model_.stage(stage).parameters().all()) {
    for (size_t i = 0; i < buffer->slots().size(); ++i) {
      const bool is_known = !averaged || known.slots[checks.size()];
      checks.push_back(!is_known                    ? FiniteCheck::kShare
                       : buffer->is_known_finite(i) ? FiniteCheck::kNothing
                                                    : FiniteCheck::kAll);
    }
  }
  return checks;
}

absl::Status LossScalePart::Look(const StepContext& step, int stage,
                                 size_t device) {
  const at::Tensor& found_inf = scale_.found_inf(device);
  if (scales_) {
    model_.stage(stage).update().Unscale(scale_.inverse(device), found_inf);
    return absl::OkStatus();
  }
  OptimizerShare share;
  std::vector<FiniteCheck> checks;
  if (step.averages_gradients) {
    share = {model_.groups.replica(), model_.groups.replicas()};
  }
  if (asks_) {
    TANDEM_ASSIGN_OR_RETURN(checks, Checks(stage, step.averages_gradients));
  }
  FindNonFinite(
      model_.stage(stage).parameters().all(),
      [&](const FlatBuffer& buffer) {
        return buffer.traits().reduces_over(kDataAxis) ? share
                                                       : OptimizerShare();
      },
      found_inf, checks);
  return absl::OkStatus();
}

// One verdict for all ranks and stages, whoever has the gradient that is not
// finite. Where no streams serve the devices, the host sums it.
absl::Status LossScalePart::AfterBackward(StepContext& step) {
  TANDEM_RETURN_IF_ERROR(model_.executor->OnDevices([&](int device) {
    const size_t local = model_.LocalDevice(device);
    for (int i :
         model_.options.schedule.stages_of[static_cast<size_t>(device)]) {
      TANDEM_RETURN_IF_ERROR(Look(step, i, local));
    }
    return absl::OkStatus();
  }));
  const CollectivePurpose purpose = [] {
    return "whether all gradients are finite";
  };
  const auto sum = [&](const at::Tensor& found) -> absl::Status {
    if (ranks_ == nullptr) return absl::OkStatus();
    if (ranks_->backend_names().HasStreams(found.device().type()) ||
        found.is_cpu()) {
      return ranks_->AllReduceSum(found, purpose);
    }
    const at::Tensor host = found.cpu();
    TANDEM_RETURN_IF_ERROR(ranks_->AllReduceSum(host, purpose));
    found.copy_(host);
    return absl::OkStatus();
  };
  return CatchTorch([&] { return scale_.Agree(sum); });
}

// Devices may decide whether the step is left out, and the host learn it with
// the score, unless the host clips.
absl::Status LossScalePart::BeforeUpdate(StepContext& step) {
  if (step.pending == nullptr || step.clips_on_host) return ReadVerdict(step);
  const MeshStrategyOptions& options = model_.options;
  // With the scores, if they are here.
  const int last = options.schedule.stages - 1;
  step.pending->found_inf =
      scale_.Update(model_.LocalDevice(DeviceOfStage(options.schedule, last)));
  for (size_t i = 0; i < options.devices.size(); ++i) {
    step.found_inf.push_back(scale_.found_inf(i));
  }
  return absl::OkStatus();
}

// Takes the learning rate of a step that is skipped.
absl::Status LossScalePart::ReadVerdict(StepContext& step) {
  const at::Tensor& found = scale_.found_inf(0);
  TANDEM_ASSIGN_OR_RETURN(
      const bool skips, CatchTorchOr([&] { return found.item<float>() != 0; }));
  if (skips || step.learning_rate.has_value()) {
    if (skips) step.learning_rate.reset();
    TANDEM_RETURN_IF_ERROR(scale_.known().Update(skips));
  }
  if (step.pending != nullptr) {
    step.pending->scaled = ScaledStep::After(scale_.known());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StepPart>> MakeLossScale(MeshModel& model) {
  const MeshStrategyOptions& options = model.options;
  if (!options.scales_loss()) return std::unique_ptr<StepPart>();
  TANDEM_ASSIGN_OR_RETURN(const LossScale scale,
                          LossScale::Create(*options.grad_scaler));
  Communicator* ranks = model.groups.world();
  const c10::Device device = options.devices.front();
  if (ranks != nullptr && ranks->backend_names().HasStreams(device.type())) {
    TANDEM_ASSIGN_OR_RETURN(ranks, model.groups.MakeDevices(device));
  }
  return std::make_unique<LossScalePart>(model, scale, ranks);
}

std::string ScalerText(const MeshStrategyOptions& options) {
  if (!options.scales_loss()) return "off";
  const GradScalerOptions& scaler = *options.grad_scaler;
  if (scaler.constant) {
    return absl::StrCat(NumberText(scaler.init_scale), " throughout");
  }
  return absl::StrCat("from ", NumberText(scaler.init_scale), ", times ",
                      NumberText(scaler.growth_factor), " after ",
                      scaler.growth_interval, " steps, times ",
                      NumberText(scaler.backoff_factor),
                      " after a skipped one");
}

void DescribeLossScale(const MeshStrategyOptions& options,
                       NamedValues& values) {
  values["grad_scaler"] = ScalerText(options);
}

}  // namespace

constexpr StepPartRow kLossScaleRow = {"loss_scale", MakeLossScale,
                                       DescribeLossScale};

}  // namespace tandem
