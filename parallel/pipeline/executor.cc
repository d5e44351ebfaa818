#include "parallel/pipeline/executor.h"

#include <glog/logging.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/host_memory.h"
#include "core/flight/dump_file.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "parallel/pipeline/device_step.h"

namespace tandem {
namespace {

absl::Status CheckMicrobatches(const Schedule& schedule,
                               const std::vector<Batch>& microbatches,
                               size_t least) {
  const auto most = static_cast<size_t>(schedule.microbatches);
  const size_t count = microbatches.size();
  const bool fits =
      least <= count && count <= most &&
      std::all_of(microbatches.begin(), microbatches.end(),
                  [](const Batch& each) { return each.size > 0; });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a step of schedule ", schedule.name, " takes ", least,
                   " to ", schedule.microbatches, " microbatches, none empty; ",
                   count, " were given"));
}

}  // namespace

PipelineExecutor::PipelineExecutor(Schedule schedule, Stages stages,
                                   PipelineLayout layout,
                                   const PipelineOptions& options)
    : schedule_(std::move(schedule)),
      stages_(std::move(stages)),
      layout_(std::move(layout)),
      options_(options),
      moments_(schedule_.actions.size()),
      peaks_(schedule_.actions.size()) {
  for (int i = 0; i < schedule_.stages; ++i) {
    fault_points_.push_back({absl::StrCat("stage:", i, ":forward"),
                             absl::StrCat("stage:", i, ":backward")});
  }
}

PipelineExecutor::~PipelineExecutor() = default;

absl::StatusOr<std::unique_ptr<PipelineExecutor>> PipelineExecutor::Create(
    Schedule schedule, Stages stages, PipelineLayout layout,
    const PipelineOptions& options) {
  // With room for all, no stage waits to hand over: how far one runs ahead is
  // the schedule's affair.
  const int capacity = schedule.microbatches;
  auto executor = absl::WrapUnique(new PipelineExecutor(
      std::move(schedule), std::move(stages), std::move(layout), options));
  TANDEM_ASSIGN_OR_RETURN(
      executor->facts_,
      ValidateSchedule(executor->schedule_, {capacity, /*most_activations=*/0,
                                             options.max_unsharded_stages}));
  TANDEM_RETURN_IF_ERROR(executor->CheckStages());
  const Schedule& own = executor->schedule_;
  const PipelineLayout& where = executor->layout_;
  TANDEM_ASSIGN_OR_RETURN(PipelineLanes lanes,
                          PipelineLanes::Create(own, where));
  executor->channels_ = std::make_unique<PipelineChannels>(
      own, where, std::move(lanes), capacity, options.timeout);
  for (int device = 0; device < own.devices(); ++device) {
    if (!where.IsHere(device)) continue;
    executor->locals_.push_back(
        std::make_unique<Local>(device, where.DeviceFor(device)));
    executor->locals_.back()->forwards = ForwardActions(own, device);
  }
  executor->StartThreads();
  return executor;
}

// One device alone is driven by whoever calls: a step costs no hand over.
void PipelineExecutor::StartThreads() {
  std::vector<const DeviceProgress*> progress;
  for (const auto& local : locals_) {
    progress.push_back(&local->progress);
    if (locals_.size() == 1) continue;
    local->thread = std::make_unique<DeviceThread>(local->device);
  }
  watch_ =
      std::make_unique<HangWatch>(std::move(progress), options_.hang_timeout);
}

absl::Status PipelineExecutor::OnDevices(const DeviceWork& work) {
  if (locals_.size() == 1) {
    return RunOnDevice(locals_[0]->device,
                       [&] { return work(locals_[0]->index); });
  }
  std::vector<std::future<absl::Status>> running;
  for (const auto& local : locals_) {
    running.push_back(local->thread->Submit(
        [&work, index = local->index] { return work(index); }));
  }
  absl::Status done;
  for (std::future<absl::Status>& each : running) done.Update(each.get());
  return done;
}

absl::Status PipelineExecutor::CheckStages() const {
  if (stages_.size() != static_cast<size_t>(schedule_.stages)) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", schedule_.name, " has ", schedule_.stages,
                     " stages, but ", stages_.size(), " were given"));
  }
  TANDEM_RETURN_IF_ERROR(CheckLayout(schedule_, layout_));
  for (int i = 0; i < schedule_.stages; ++i) {
    const int device = DeviceOfStage(schedule_, i);
    const auto& stage = stages_[static_cast<size_t>(i)];
    CHECK_EQ(stage != nullptr, layout_.IsHere(device)) << "stage " << i;
    if (stage == nullptr) continue;
    CHECK_EQ(static_cast<bool>(stage->loss()), i + 1 == schedule_.stages)
        << stage->name();
    if (stage->device() == layout_.DeviceFor(device)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        stage->name(), " is on ", stage->device().str(), ", not on ",
        layout_.DeviceFor(device).str(), " as the layout has it"));
  }
  return absl::OkStatus();
}

void PipelineExecutor::Fail(Step& step, const absl::Status& reason) {
  {
    absl::MutexLock lock(&step.mutex);
    // Others fail because this one did.
    if (step.failure.ok()) step.failure = reason;
  }
  channels_->Close(reason);
}

absl::Status PipelineExecutor::Run(Step& step) {
  const size_t count = step.microbatches->size();
  for (const Batch& each : *step.microbatches) {
    step.rows.push_back(each.size);
    step.firsts.push_back(step.size);
    step.size += each.size;
  }
  step.losses.scores.resize(count);
  step.outputs.resize(count);
  if (step.trains) {
    step.last_gradients = LastGradients(schedule_, static_cast<int>(count));
  }
  const uint64_t identity =
      count == 0 ? 0 : step.microbatches->front().identity;
  channels_->Begin(step.rows, identity, step.trains);
  for (const auto& local : locals_) {
    local->actions = step.trains
                         ? &schedule_.actions[static_cast<size_t>(local->index)]
                         : &local->forwards;
  }
  watch_->Begin([this, &step](size_t device, int action) {
    OnHang(*locals_[device], action, step);
  });
  const absl::Status done = OnDevices([&](int index) {
    // This rank's devices are neighbours in the schedule.
    const auto here = static_cast<size_t>(index - locals_.front()->index);
    DeviceStep device(*this, *locals_[here], step);
    absl::Status ran = device.RunActions();
    if (ran.ok()) ran = device.Finish();
    // An error ends the step on the other devices, too.
    if (!ran.ok()) Fail(step, ran);
    if (step.trains) {
      moments_[static_cast<size_t>(index)] = device.TakeMoments();
    }
    return ran;
  });
  watch_->End();
  absl::MutexLock lock(&step.mutex);
  if (step.failure.ok()) step.failure = done;
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    for (LossTerm& each : stage->TakeTerms()) {
      step.losses.terms.push_back(std::move(each));
    }
    if (!step.failure.ok()) stage->Clear();
  }
  return step.failure;
}

absl::StatusOr<Score> PipelineExecutor::TrainStep(
    const std::vector<Batch>& microbatches, const StepSamples& samples,
    const StepGradients& gradients) {
  TANDEM_RETURN_IF_ERROR(CheckMicrobatches(schedule_, microbatches, 0));
  Step step;
  step.microbatches = &microbatches;
  step.samples = samples;
  step.gradients = &gradients;
  TANDEM_RETURN_IF_ERROR(Run(step));
  losses_ = std::move(step.losses);
  Score score;
  for (const DeferredScore& each : losses_.scores) score += each.known;
  return score;
}

absl::StatusOr<Inference> PipelineExecutor::Infer(
    const std::vector<Batch>& microbatches, bool keeps_outputs) {
  TANDEM_RETURN_IF_ERROR(CheckMicrobatches(schedule_, microbatches, 1));
  Step step;
  step.microbatches = &microbatches;
  step.trains = false;
  step.keeps_outputs = keeps_outputs;
  TANDEM_RETURN_IF_ERROR(Run(step));
  Inference inference;
  for (const DeferredScore& each : step.losses.scores) {
    inference.score += each.known;
  }
  inference.sums = std::move(step.losses.terms);
  if (keeps_outputs && has_last_stage()) {
    inference.outputs = std::move(step.outputs);
  }
  return inference;
}

std::string PipelineExecutor::Describe(const Action& action) const {
  const std::string& stage = stages_[static_cast<size_t>(action.stage)]->name();
  if (!Computes(action.kind)) {
    return absl::StrCat(ActionName(action.kind), " of ", stage);
  }
  return absl::StrCat(ActionName(action.kind), " of microbatch ",
                      action.microbatch, " in ", stage);
}

void PipelineExecutor::OnHang(const Local& local, int action, Step& step) {
  const Action& where = (*local.actions)[static_cast<size_t>(action)];
  const Layer* const layer =
      stages_[static_cast<size_t>(where.stage)]->running_layer();
  const std::string message = absl::StrCat(
      Describe(where), " has been computing for ",
      absl::FormatDuration(absl::FromChrono(options_.hang_timeout)),
      layer == nullptr ? "" : absl::StrCat(", in layer ", layer->name),
      ": it cannot be stopped; look for a loop without an end there, or give "
      "it more time");
  Fail(step, absl::DeadlineExceededError(message));
  EndHung(message);
}

void PipelineExecutor::EndHung(const std::string& message) {
  DumpFlightOfFailure(FlightTrigger::kGaveUp, message);
  if (!options_.on_hang) EndProcess(message);
  options_.on_hang(message);
}

absl::StatusOr<std::vector<double>> PipelineExecutor::Read(
    const std::vector<at::Tensor>& numbers) {
  DeviceProgress& progress = locals_.back()->progress;
  watch_->Begin([this](size_t /*device*/, int /*action*/) {
    EndHung(absl::StrCat(
        "the devices have not come to the end of the last steps within ",
        absl::FormatDuration(absl::FromChrono(options_.hang_timeout)),
        ", where their losses are read: they cannot be stopped; look for an "
        "operator that does not end, or give it more time"));
  });
  progress.Starts(0, DeviceProgress::Clock::now());
  absl::StatusOr<std::vector<double>> read =
      CatchTorchOr([&] { return ReadNumbers(numbers); });
  progress.Ends();
  watch_->End();
  if (!read.ok()) return Annotate(read.status(), "reading losses");
  return read;
}

}  // namespace tandem
