#include "parallel/pipeline_executor.h"

#include <glog/logging.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/fault_point.h"
#include "core/status_macros.h"
#include "core/torch_status.h"

namespace tandem {

using Clock = ActionTime::Clock;

// What runs: a training step, or a forward-only pass.
struct PipelineExecutor::Step {
  const std::vector<Batch>* microbatches = nullptr;
  bool trains = true;
  bool keeps_outputs = false;
  DeviceWork finish;
  std::optional<Samples> samples;
  std::vector<int64_t> rows;        // by microbatch
  std::vector<int64_t> firsts;      // samples before the microbatch
  int64_t size = 0;                 // samples in all
  std::vector<Score> scores;        // by microbatch
  std::vector<at::Tensor> outputs;  // by microbatch
  absl::Mutex mutex;
  absl::Status failure ABSL_GUARDED_BY(mutex);  // the first
};

struct PipelineExecutor::Local {
  Local(int in_schedule, c10::Device on)
      : index(in_schedule), place(std::make_unique<Place>(on)) {}

  int index;                                     // in the schedule
  std::vector<Action> forwards;                  // of a forward-only pass
  const std::vector<Action>* actions = nullptr;  // of the step under way
  DeviceProgress progress;
  std::unique_ptr<Place> place;  // last
};

namespace {

// Chunk by chunk: each stage waits for earlier ones alone.
std::vector<Action> ForwardsOf(const Schedule& schedule, int device) {
  std::vector<Action> forwards;
  for (int stage : schedule.stages_of[static_cast<size_t>(device)]) {
    for (int m = 0; m < schedule.microbatches; ++m) {
      forwards.push_back({ActionKind::kForward, stage, m});
    }
  }
  return forwards;
}

// Of an action in its list.
int NumberOf(const Action& action, const std::vector<Action>& all) {
  return static_cast<int>(&action - all.data());
}

absl::Status CheckMicrobatches(const Schedule& schedule,
                               const std::vector<Batch>& microbatches,
                               bool exactly) {
  const auto most = static_cast<size_t>(schedule.microbatches);
  const bool fits =
      (exactly ? microbatches.size() == most
               : !microbatches.empty() && microbatches.size() <= most) &&
      std::all_of(microbatches.begin(), microbatches.end(),
                  [](const Batch& each) { return each.size > 0; });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a step of schedule ", schedule.name, " takes ", exactly ? "" : "1 to ",
      schedule.microbatches, " microbatches, none empty; ", microbatches.size(),
      " were given"));
}

}  // namespace

PipelineExecutor::PipelineExecutor(Schedule schedule, Stages stages,
                                   PipelineLayout layout,
                                   const PipelineOptions& options)
    : schedule_(std::move(schedule)),
      stages_(std::move(stages)),
      layout_(std::move(layout)),
      options_(options),
      timeline_(schedule_.actions.size()),
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
  TANDEM_ASSIGN_OR_RETURN(const int least, LeastChannelCapacity(schedule));
  // With room for all, no stage waits to hand over: how far one runs ahead is
  // the schedule's affair.
  const int capacity = std::max({least, 1, schedule.microbatches});
  auto executor = absl::WrapUnique(new PipelineExecutor(
      std::move(schedule), std::move(stages), std::move(layout), options));
  TANDEM_ASSIGN_OR_RETURN(executor->facts_,
                          ValidateSchedule(executor->schedule_, {capacity, 0}));
  TANDEM_RETURN_IF_ERROR(executor->CheckStages());
  const Schedule& its = executor->schedule_;
  const PipelineLayout& where = executor->layout_;
  executor->links_ =
      std::make_unique<PipelineLinks>(its, where, capacity, options.timeout);
  for (int device = 0; device < its.devices(); ++device) {
    if (!where.IsHere(device)) continue;
    executor->locals_.push_back(
        std::make_unique<Local>(device, where.DeviceFor(device)));
    executor->locals_.back()->forwards = ForwardsOf(its, device);
  }
  return executor;
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
    CHECK_EQ(stage->has_loss(), i + 1 == schedule_.stages) << stage->name();
    if (stage->device() == layout_.DeviceFor(device)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        stage->name(), " is on ", stage->device().str(), ", not on ",
        layout_.DeviceFor(device).str(), " as the layout has it"));
  }
  return absl::OkStatus();
}

std::string PipelineExecutor::Describe(const Action& action) const {
  const char* what = action.kind == ActionKind::kForward    ? "forward"
                     : action.kind == ActionKind::kBackward ? "backward"
                     : action.kind == ActionKind::kBackwardInput
                         ? "backward of the input"
                         : "backward of the weights";
  return absl::StrCat(what, " of microbatch ", action.microbatch, " in ",
                      stages_[static_cast<size_t>(action.stage)]->name());
}

StagePass PipelineExecutor::PassOf(int microbatch, const Step& step) const {
  const auto index = static_cast<size_t>(microbatch);
  const int count = static_cast<int>(step.rows.size());
  StagePass pass;
  pass.microbatch = {microbatch, count, false,
                     step.trains && options_.defers_statistics};
  if (step.samples.has_value()) {
    pass.samples = step.samples;
    pass.samples->first += step.firsts[index];
  }
  pass.keeps_activations =
      options_.checkpointing == ActivationCheckpointing::kNever ||
      (options_.checkpointing == ActivationCheckpointing::kExceptLast &&
       microbatch + 1 == count);
  return pass;
}

absl::StatusOr<StageMessage> PipelineExecutor::InputsOf(
    const Action& action, const Step& step) const {
  if (action.stage > 0) {
    return links_->inputs(action.stage)->Receive(action.microbatch);
  }
  const Batch& batch =
      (*step.microbatches)[static_cast<size_t>(action.microbatch)];
  if (!batch.inputs.defined()) {
    return absl::InvalidArgumentError(
        "the first stage's rank needs the batch's inputs");
  }
  return CatchTorchOr(
      [&] { return StageMessage{batch.inputs.to(stages_.front()->device())}; });
}

absl::Status PipelineExecutor::RunForward(const Action& action, Step& step,
                                          Local& local, ActionTime& time) {
  const auto index = static_cast<size_t>(action.microbatch);
  PipelineStage& stage = *stages_[static_cast<size_t>(action.stage)];
  TANDEM_ASSIGN_OR_RETURN(const StageMessage inputs, InputsOf(action, step));
  time.started = Clock::now();
  local.progress.Starts(NumberOf(action, *local.actions), time.started);
  const StagePass pass = PassOf(action.microbatch, step);
  const Batch& batch = (*step.microbatches)[index];
  if (step.trains && stage.has_loss()) {
    const double weight =
        static_cast<double>(batch.size) / static_cast<double>(step.size);
    TANDEM_ASSIGN_OR_RETURN(
        step.scores[index],
        stage.ForwardLoss(pass, inputs, batch.targets, weight));
    time.computed = Clock::now();
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(
      const StageMessage outputs,
      step.trains ? stage.Forward(pass, inputs) : stage.Infer(pass, inputs));
  if (stage.has_loss() && batch.targets.defined()) {
    TANDEM_ASSIGN_OR_RETURN(step.scores[index],
                            stage.Judge(outputs[0], batch.targets));
  }
  time.computed = Clock::now();
  local.progress.Ends();
  if (stage.has_loss()) {
    if (step.keeps_outputs) step.outputs[index] = outputs[0];
    return absl::OkStatus();
  }
  return links_->outputs(action.stage)->Send(action.microbatch, outputs);
}

absl::Status PipelineExecutor::RunBackward(const Action& action, Local& local,
                                           ActionTime& time) {
  PipelineStage& stage = *stages_[static_cast<size_t>(action.stage)];
  const int number = NumberOf(action, *local.actions);
  StageMessage gradients;
  if (!stage.has_loss()) {
    // While the gradient is on its way.
    local.progress.Starts(number, Clock::now());
    TANDEM_RETURN_IF_ERROR(stage.Recompute(action.microbatch));
    local.progress.Ends();
    TANDEM_ASSIGN_OR_RETURN(
        gradients, links_->gradients(action.stage)->Receive(action.microbatch));
  }
  time.started = Clock::now();
  local.progress.Starts(number, time.started);
  TANDEM_ASSIGN_OR_RETURN(
      const StageMessage further,
      action.kind == ActionKind::kBackward
          ? stage.Backward(action.microbatch, gradients)
          : stage.BackwardInput(action.microbatch, gradients));
  time.computed = Clock::now();
  local.progress.Ends();
  if (action.stage == 0) return absl::OkStatus();
  return links_->further(action.stage)->Send(action.microbatch, further);
}

absl::Status PipelineExecutor::RunBackwardWeight(const Action& action,
                                                 Local& local,
                                                 ActionTime& time) {
  time.started = time.came;
  local.progress.Starts(NumberOf(action, *local.actions), time.started);
  const absl::Status done =
      stages_[static_cast<size_t>(action.stage)]->BackwardWeight(
          action.microbatch);
  time.computed = Clock::now();
  return done;
}

absl::Status PipelineExecutor::Compute(const Action& action, Step& step,
                                       Local& local, ActionTime& time) {
  const FaultPoints& points = fault_points_[static_cast<size_t>(action.stage)];
  const bool is_forward = action.kind == ActionKind::kForward;
  // A delay there is watched like a layer that takes as long.
  local.progress.Starts(NumberOf(action, *local.actions), time.came);
  TANDEM_RETURN_IF_ERROR(FaultPoint(
      is_forward ? points.forward : points.backward, action.microbatch));
  local.progress.Ends();
  if (is_forward) return RunForward(action, step, local, time);
  if (action.kind == ActionKind::kBackwardWeight) {
    return RunBackwardWeight(action, local, time);
  }
  return RunBackward(action, local, time);
}

absl::Status PipelineExecutor::RunAction(const Action& action, Step& step,
                                         Local& local, ActionTime& time) {
  time.action = action;
  time.came = Clock::now();
  const absl::Status done = Compute(action, step, local, time);
  local.progress.Ends();
  time.ended = Clock::now();
  return done.ok() ? done : Annotate(done, Describe(action));
}

// What is left when all actions are done.
absl::Status PipelineExecutor::FinishDevice(const Local& local,
                                            const Step& step) {
  for (int i : schedule_.stages_of[static_cast<size_t>(local.index)]) {
    if (step.trains) {
      TANDEM_RETURN_IF_ERROR(stages_[static_cast<size_t>(i)]->FlushWeights());
    }
    for (StageSender* sender : {links_->outputs(i), links_->further(i)}) {
      if (sender != nullptr) TANDEM_RETURN_IF_ERROR(sender->Flush());
    }
  }
  return step.finish ? step.finish(local.index) : absl::OkStatus();
}

absl::Status PipelineExecutor::RunDevice(Local& local, Step& step) {
  std::vector<ActionTime> times;
  times.reserve(local.actions->size());
  absl::Status done;
  for (const Action& action : *local.actions) {
    if (action.microbatch >= static_cast<int>(step.rows.size())) continue;
    times.emplace_back();
    done = RunAction(action, step, local, times.back());
    if (!done.ok()) break;
    NoteHeld(local);
  }
  if (done.ok()) done = FinishDevice(local, step);
  if (!done.ok()) Fail(step, done);
  if (step.trains) {
    timeline_[static_cast<size_t>(local.index)] = std::move(times);
  }
  return done;
}

void PipelineExecutor::NoteHeld(const Local& local) {
  int held = 0;
  for (int i : schedule_.stages_of[static_cast<size_t>(local.index)]) {
    held += stages_[static_cast<size_t>(i)]->microbatches_held();
  }
  int& peak = peaks_[static_cast<size_t>(local.index)];
  peak = std::max(peak, held);
}

void PipelineExecutor::Fail(Step& step, const absl::Status& reason) {
  {
    absl::MutexLock lock(&step.mutex);
    // Others fail because this one did.
    if (step.failure.ok()) step.failure = reason;
  }
  links_->Close(reason);
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
  options_.on_hang(message);
}

absl::Status PipelineExecutor::Run(Step& step) {
  const size_t count = step.microbatches->size();
  for (const Batch& each : *step.microbatches) {
    step.rows.push_back(each.size);
    step.firsts.push_back(step.size);
    step.size += each.size;
  }
  step.scores.resize(count);
  step.outputs.resize(count);
  links_->Begin(step.rows, step.trains);
  std::vector<std::future<absl::Status>> running;
  std::vector<const DeviceProgress*> progress;
  for (const auto& local : locals_) {
    local->actions = step.trains
                         ? &schedule_.actions[static_cast<size_t>(local->index)]
                         : &local->forwards;
    progress.push_back(&local->progress);
    running.push_back(local->place->Submit(
        [this, &local, &step] { return RunDevice(*local, step); }));
  }
  const absl::Status done =
      AwaitDevices(std::move(running), progress, options_.hang_timeout,
                   [&](size_t device, int action) {
                     OnHang(*locals_[device], action, step);
                   });
  if (done.ok()) return done;
  for (const auto& stage : stages_) {
    if (stage != nullptr) stage->Clear();
  }
  absl::MutexLock lock(&step.mutex);
  return step.failure.ok() ? done : step.failure;
}

absl::StatusOr<Score> PipelineExecutor::TrainStep(
    const std::vector<Batch>& microbatches,
    const std::optional<Samples>& samples, const DeviceWork& finish) {
  TANDEM_RETURN_IF_ERROR(CheckMicrobatches(schedule_, microbatches, true));
  Step step;
  step.microbatches = &microbatches;
  step.samples = samples;
  step.finish = finish;
  TANDEM_RETURN_IF_ERROR(Run(step));
  Score score;
  for (const Score& each : step.scores) score += each;
  return score;
}

absl::Status PipelineExecutor::OnDevices(const DeviceWork& work) {
  std::vector<std::future<absl::Status>> running;
  for (const auto& local : locals_) {
    running.push_back(
        local->place->Submit([&work, &local] { return work(local->index); }));
  }
  absl::Status done;
  for (std::future<absl::Status>& each : running) done.Update(each.get());
  return done;
}

absl::StatusOr<Inference> PipelineExecutor::Infer(
    const std::vector<Batch>& microbatches, bool keeps_outputs) {
  TANDEM_RETURN_IF_ERROR(CheckMicrobatches(schedule_, microbatches, false));
  Step step;
  step.microbatches = &microbatches;
  step.trains = false;
  step.keeps_outputs = keeps_outputs;
  TANDEM_RETURN_IF_ERROR(Run(step));
  Inference inference;
  for (const Score& each : step.scores) inference.score += each;
  if (keeps_outputs && has_last_stage()) {
    inference.outputs = std::move(step.outputs);
  }
  return inference;
}

}  // namespace tandem
