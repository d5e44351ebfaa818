#include "tools/trainer/job/partition.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/base/byte_size.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"
#include "core/comm/group_buffer.h"
#include "core/loss/loss.h"
#include "core/memory/state_bytes.h"
#include "core/model/layer_list.h"
#include "core/precision/autocast.h"
#include "core/program/long_task.h"
#include "parallel/partition/layer_profile.h"
#include "parallel/partition/microbatch_choice.h"
#include "parallel/partition/partition.h"
#include "parallel/partition/table.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/model_parallel.h"
#include "parallel/schedule/schedules.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/strategy_options.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {
namespace {

ModelOutline Outline(const LayerSpecs& specs) {
  ModelOutline outline;
  for (const LayerSpec& each : specs) {
    outline.names.push_back(each.name);
    outline.types.push_back(each.type);
  }
  outline.parameters = ParameterCounts(specs);
  return outline;
}

absl::StatusOr<PipelineDevices> DescribeDevices(
    const TrainOptions& options, const std::vector<c10::Device>& devices) {
  PipelineDevices described;
  TANDEM_ASSIGN_OR_RETURN(described.sending,
                          MeasureCopy(devices.front(), devices.back()));
  if (!options.devices.device_memory.empty()) {
    TANDEM_ASSIGN_OR_RETURN(described.device_bytes,
                            ParseByteSize(options.devices.device_memory));
  }
  return described;
}

// A parameter server has the only optimizer.
StatePerParameter KeptBy(const TrainOptions& options, const PartitionTask& task,
                         const std::vector<c10::Device>& devices,
                         const Communicator& world) {
  if (ParameterServerCount(options) > 0) return {/*optimizer_states=*/0};
  return JobStatePerParameter(
      options, task.schedule, task.model.optimizers, devices,
      static_cast<int>(world.size() / RanksOfReplica(options.pipeline)),
      SharesMemory(world));
}

absl::StatusOr<ModelProfile> Profile(const TrainOptions& options,
                                     const PartitionTask& task,
                                     const LayerList& layers,
                                     c10::Device device, const Dataset& data,
                                     const StatePerParameter& kept) {
  TANDEM_ASSIGN_OR_RETURN(const Batch sample,
                          FirstSamples(data, task.microbatch));
  ProfileOptions profile;
  profile.device = device;
  profile.splits_backward = SplitsBackward(task.schedule);
  profile.adds_gradients = task.schedule.microbatches > 1;
  profile.kept = kept;
  profile.further_inputs = sample.further_inputs;
  profile.loss_takes = task.model.loss.names().outputs;
  if (options.vocab_parallel <= 1) {  // else layers compute all of it
    TANDEM_ASSIGN_OR_RETURN(LossTargets targets,
                            BatchTargets(sample, task.model.loss.names()));
    if (options.pipeline.tensor > 1 && targets.targets.defined()) {
      // Nobody else has the classes that the first rank has not.
      targets.targets = targets.targets.remainder(
          std::max<int64_t>(1, data.classes() / options.pipeline.tensor));
    }
    profile.loss = [targets, &loss = task.model.loss](const at::Tensor& output,
                                                      const Skips& taken) {
      return loss(MakeLossArguments(output, taken, targets)).loss;
    };
  }
  const AutocastGuard precision(device.type(),
                                RequestedPrecision(options).param_dtype);
  TANDEM_ASSIGN_OR_RETURN(ModelProfile model,
                          ProfileLayers(layers, sample.inputs, profile));
  const int64_t evaluated = LargestMicrobatch(
      task.evaluation_batch, task.schedule.microbatches, /*size=*/0);
  model.evaluation_scale =
      static_cast<double>(evaluated) / static_cast<double>(sample.size);
  if (options.pipeline.reproducible) {
    // Tied weights are copies within a stage, too.
    for (LayerProfile& each : model.layers) each.shared_state.clear();
  }
  return model;
}

absl::StatusOr<JobPartition> Cut(const BalanceRule& rule,
                                 const ModelOutline& outline,
                                 const Schedule& schedule) {
  JobPartition partition;
  partition.schedule = schedule;
  TANDEM_ASSIGN_OR_RETURN(partition.cuts,
                          PartitionModel(rule, outline, schedule));
  TANDEM_ASSIGN_OR_RETURN(partition.table,
                          PartitionTable(outline, partition.cuts, schedule));
  return partition;
}

// The task, and its partition.
struct ChosenTask {
  int64_t index = 0;
  JobPartition partition;
};

absl::StatusOr<ChosenTask> Measure(const TrainOptions& options,
                                   const BalanceRule& rule,
                                   const std::vector<PartitionTask>& tasks,
                                   const std::vector<c10::Device>& devices,
                                   const Dataset& data,
                                   const Communicator& world) {
  const PartitionTask& first = tasks.front();
  TANDEM_ASSIGN_OR_RETURN(PipelineDevices described,
                          DescribeDevices(options, devices));
  described.checkpointing = first.checkpointing;
  const StatePerParameter kept = KeptBy(options, first, devices, world);
  const PlannedLayersScope shared(options.pipeline);
  const LayerList layers = MakeLayers(first.model.layers, options.seed);
  std::vector<Schedule> schedules;
  for (const PartitionTask& each : tasks) schedules.push_back(each.schedule);
  TANDEM_ASSIGN_OR_RETURN(
      const MicrobatchChoice choice,
      ChooseMicrobatches(rule, Outline(first.model.layers), schedules,
                         described, [&](size_t i) {
                           return Profile(options, tasks[i], layers,
                                          devices.front(), data, kept);
                         }));
  ChosenTask chosen;
  chosen.index = static_cast<int64_t>(choice.index);
  chosen.partition.schedule = schedules[choice.index];
  chosen.partition.cuts = choice.cuts;
  TANDEM_ASSIGN_OR_RETURN(chosen.partition.table,
                          PartitionTable(choice.model, choice.cuts,
                                         chosen.partition.schedule, described));
  if (MeasuresMicrobatches(options.pipeline)) {
    chosen.partition.microbatches = DescribeChoice(choice);
  }
  return chosen;
}

absl::StatusOr<ChosenTask> Partition(const TrainOptions& options,
                                     const std::vector<PartitionTask>& tasks,
                                     const std::vector<c10::Device>& devices,
                                     const Dataset& data,
                                     const Communicator& world) {
  const std::string flag = BalanceFor(options.pipeline);
  TANDEM_ASSIGN_OR_RETURN(const BalanceRule rule, ParseBalance(flag));
  if (rule.kind == BalanceKind::kProfile ||
      MeasuresMicrobatches(options.pipeline)) {
    return Measure(options, rule, tasks, devices, data, world);
  }
  ChosenTask only;
  TANDEM_ASSIGN_OR_RETURN(
      only.partition,
      Cut(rule, Outline(tasks.front().model.layers), tasks.front().schedule));
  return only;
}

// How many samples of the test set each of so many replicas evaluates at a time
// that train on `samples`.
int64_t EvaluationBatch(const TrainOptions& options, const JobData& data,
                        int64_t samples, int64_t replicas) {
  if (!data.has_test()) return 0;
  const int64_t share = (data.test->size() + replicas - 1) / replicas;
  return std::min(share, EvaluationBatchSize(options, samples, *data.test));
}

std::string EncodeChosen(const absl::StatusOr<ChosenTask>& chosen) {
  std::string text;
  AppendField(EncodeStatus(chosen.status()), &text);
  if (chosen.ok()) {
    AppendNumber(chosen->index, &text);
    absl::StrAppend(&text, absl::StrJoin(chosen->partition.cuts, ","));
  }
  return text;
}

// Every rank fails as rank 0 does, with the same code.
absl::StatusOr<ChosenTask> DecodeChosen(
    absl::string_view text, const std::vector<PartitionTask>& tasks) {
  TANDEM_RETURN_IF_ERROR(Verdict({std::string(TakeField(&text).value_or(""))}));
  ChosenTask chosen;
  chosen.index = TakeInt64(&text).value_or(-1);
  if (chosen.index < 0 || chosen.index >= static_cast<int64_t>(tasks.size())) {
    return absl::InternalError("not the number of a schedule");
  }
  chosen.partition.schedule = tasks[chosen.index].schedule;
  for (const auto word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int64_t& cut = chosen.partition.cuts.emplace_back(0);
    if (absl::SimpleAtoi(word, &cut)) continue;
    return absl::InternalError(absl::StrCat("not a cut: ", word));
  }
  return chosen;
}

// The status, with the flags that asked for what is not possible, if any did.
absl::Status AsAsked(const TrainOptions& options, const absl::Status& status) {
  const PipelineSettings& pipeline = options.pipeline;
  std::vector<std::string> flags;
  if (MeasuresMicrobatches(pipeline)) flags.push_back("--microbatches=auto");
  if (!pipeline.balance.empty()) {
    flags.push_back(absl::StrCat("--balance=", pipeline.balance));
  }
  return flags.empty() ? status : Annotate(status, absl::StrJoin(flags, " "));
}

}  // namespace

absl::StatusOr<JobPartition> PartitionJob(
    const TrainOptions& options, const std::vector<PartitionTask>& tasks,
    const std::vector<c10::Device>& devices, const Dataset& data,
    Communicator& world) {
  absl::StatusOr<ChosenTask> mine = ChosenTask();
  if (world.rank() == 0) {
    mine = Partition(options, tasks, devices, data, world);
    if (!mine.ok()) mine = AsAsked(options, mine.status());
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(EncodeChosen(mine), [] {
                            return "where the model is cut";
                          }));
  if (!mine.ok()) return mine.status();
  if (world.rank() == 0) return (*std::move(mine)).partition;
  TANDEM_ASSIGN_OR_RETURN(ChosenTask chosen, DecodeChosen(all[0], tasks));
  return std::move(chosen.partition);
}

namespace {

// Whether every device has all of the model.
bool IsInOnePiece(const TrainOptions& options) {
  const PipelineContext around = MakePipelineContext(options);
  return !IsPipeline(options.pipeline, around) &&
         (options.devices.devices_per_rank == 1 || IsDataParallel(around));
}

absl::StatusOr<PartitionTask> MakeTask(const TrainOptions& options,
                                       const JobModel& model,
                                       const JobData& data, int workers) {
  const PipelineSettings& pipeline = options.pipeline;
  const int64_t replicas = workers / RanksOfReplica(pipeline);
  PartitionTask task;
  task.model = model;
  if (IsPipeline(pipeline, MakePipelineContext(options))) {
    // In a step.
    const int64_t samples = ResolvedBatchSize(options) / replicas;
    TANDEM_ASSIGN_OR_RETURN(
        task.schedule,
        ScheduleFor(pipeline, pipeline.pipe * options.devices.devices_per_rank,
                    samples));
    task.checkpointing = CheckpointingMode(pipeline);
    task.microbatch = LargestMicrobatch(samples, task.schedule.microbatches,
                                        pipeline.microbatch_size);
    task.evaluation_batch = EvaluationBatch(options, data, samples, replicas);
    return task;
  }
  const int64_t samples = ResolvedBatchSize(options) / replicas;
  const int64_t accumulated = AccumulationSteps(options, samples);
  TANDEM_ASSIGN_OR_RETURN(
      task.schedule,
      SequentialSchedule(
          IsInOnePiece(options)
              ? 1
              : static_cast<int>(options.devices.devices_per_rank),
          static_cast<int>(accumulated)));
  task.microbatch =
      LargestMicrobatch(samples, accumulated, pipeline.microbatch_size);
  task.evaluation_batch = EvaluationBatch(options, data, samples, replicas);
  return task;
}

// One for each number of microbatches that is to be tried.
absl::StatusOr<std::vector<PartitionTask>> MakeTasks(
    const TrainOptions& options, const JobModel& model, const JobData& data,
    int workers) {
  const PipelineSettings& pipeline = options.pipeline;
  std::vector<std::optional<int64_t>> numbers = {pipeline.microbatches};
  if (MeasuresMicrobatches(pipeline)) {
    const std::vector<int64_t> candidates = MicrobatchCandidates(
        pipeline, pipeline.pipe * options.devices.devices_per_rank,
        ResolvedBatchSize(options) / (workers / RanksOfReplica(pipeline)));
    numbers.assign(candidates.begin(), candidates.end());
  }
  TrainOptions given = options;
  std::vector<PartitionTask> tasks;
  for (const std::optional<int64_t>& each : numbers) {
    given.pipeline.microbatches = each;
    TANDEM_ASSIGN_OR_RETURN(PartitionTask task,
                            MakeTask(given, model, data, workers));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace

absl::StatusOr<JobPartition> MakePartition(
    const TrainOptions& options, const JobModel& model,
    const std::vector<c10::Device>& devices, const JobData& data,
    Communicator& world) {
  const LongTask preparing("cutting the model",
                           LongTask::SpeaksIf(world.rank() == 0));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<PartitionTask> tasks,
      MakeTasks(options, model, data,
                world.size() - ParameterServerCount(options)));
  if (IsInOnePiece(options)) {
    return JobPartition{tasks.front().schedule, {}, "", ""};
  }
  return PartitionJob(options, tasks, devices, *data.train, world);
}

absl::StatusOr<PlannedPartition> PlanPartition(const TrainOptions& options,
                                               const JobModel& model,
                                               const JobData& data,
                                               int workers) {
  TANDEM_ASSIGN_OR_RETURN(const PartitionTask task,
                          MakeTask(options, model, data, workers));
  PlannedPartition planned;
  planned.microbatch = task.microbatch;
  if (!IsInOnePiece(options)) {
    const std::string flag = BalanceFor(options.pipeline);
    TANDEM_ASSIGN_OR_RETURN(BalanceRule rule, ParseBalance(flag));
    planned.is_measured_later = rule.kind == BalanceKind::kProfile;
    if (planned.is_measured_later) rule.kind = BalanceKind::kParameters;
    auto cut = Cut(rule, Outline(task.model.layers), task.schedule);
    if (!cut.ok()) return AsAsked(options, cut.status());
    planned.partition = *std::move(cut);
  }
  planned.partition.schedule = task.schedule;
  return planned;
}

}  // namespace tandem
