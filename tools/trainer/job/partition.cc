#include "tools/trainer/job/partition.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

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
#include "parallel/partition/partition.h"
#include "parallel/partition/table.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/model_parallel.h"
#include "parallel/schedule/schedules.h"
#include "parallel/step/parts/step_parts.h"
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
  MeshStrategyOptions mesh = ReplicaStrategyOptions(options, task.schedule);
  AddReplicas(options, &mesh);
  mesh.devices = devices;
  static_cast<UpdateOptions&>(mesh) = task.optimizers;
  StatePerParameter kept = KeptStatePerParameter(
      mesh, static_cast<int>(world.size() / options.pipeline.pipe),
      SharesMemory(world));
  const CommHook hook = RequestedHook(options.ddp);
  if (hook.is_power_sgd() && hook.power_sgd.use_error_feedback) ++kept.further;
  return kept;
}

absl::StatusOr<ModelProfile> Profile(const TrainOptions& options,
                                     const PartitionTask& task,
                                     c10::Device device, const Dataset& data,
                                     const StatePerParameter& kept) {
  TANDEM_ASSIGN_OR_RETURN(const Batch sample,
                          FirstSamples(data, task.microbatch));
  ProfileOptions profile;
  profile.device = device;
  profile.splits_backward = SplitsBackward(task.schedule);
  profile.kept = kept;
  profile.further_inputs = sample.further_inputs;
  profile.loss_takes = task.loss.names().outputs;
  if (options.vocab_parallel <= 1) {  // else layers compute all of it
    TANDEM_ASSIGN_OR_RETURN(const LossTargets targets,
                            BatchTargets(sample, task.loss.names()));
    profile.loss = [targets, &loss = task.loss](const at::Tensor& output,
                                                const Skips& taken) {
      return loss(MakeLossArguments(output, taken, targets)).loss;
    };
  }
  const AutocastGuard precision(device.type(),
                                RequestedPrecision(options).param_dtype);
  TANDEM_ASSIGN_OR_RETURN(ModelProfile model,
                          ProfileLayers(MakeLayers(task.specs, options.seed),
                                        sample.inputs, profile));
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
                                 const Schedule& schedule,
                                 const PipelineDevices& devices) {
  JobPartition partition;
  TANDEM_ASSIGN_OR_RETURN(partition.cuts,
                          PartitionModel(rule, outline, schedule, devices));
  TANDEM_ASSIGN_OR_RETURN(
      partition.table,
      PartitionTable(outline, partition.cuts, schedule, devices));
  return partition;
}

absl::StatusOr<JobPartition> Partition(const TrainOptions& options,
                                       const PartitionTask& task,
                                       const std::vector<c10::Device>& devices,
                                       const Dataset& data,
                                       const Communicator& world) {
  const std::string flag = BalanceFor(options.pipeline);
  TANDEM_ASSIGN_OR_RETURN(const BalanceRule rule, ParseBalance(flag));
  ModelOutline outline = Outline(task.specs);
  PipelineDevices described;
  if (rule.kind == BalanceKind::kProfile) {
    TANDEM_ASSIGN_OR_RETURN(described, DescribeDevices(options, devices));
    described.checkpointing = task.checkpointing;
    TANDEM_ASSIGN_OR_RETURN(outline.profile,
                            Profile(options, task, devices.front(), data,
                                    KeptBy(options, task, devices, world)));
  }
  return Cut(rule, outline, task.schedule, described);
}

// How many samples of the test set each of so many replicas evaluates at a time
// that train on `samples`.
int64_t EvaluationBatch(const TrainOptions& options, const JobData& data,
                        int64_t samples, int64_t replicas) {
  if (!data.has_test()) return 0;
  const int64_t share = (data.test->size() + replicas - 1) / replicas;
  return std::min(share, EvaluationBatchSize(options, samples, *data.test));
}

std::string EncodePartition(const absl::StatusOr<JobPartition>& partition) {
  std::string text;
  AppendField(EncodeStatus(partition.status()), &text);
  if (partition.ok()) {
    absl::StrAppend(&text, absl::StrJoin(partition->cuts, ","));
  }
  return text;
}

// Every rank fails as rank 0 does, with the same code.
absl::StatusOr<Cuts> DecodeCuts(absl::string_view text) {
  TANDEM_RETURN_IF_ERROR(Verdict({std::string(TakeField(&text).value_or(""))}));
  Cuts cuts;
  for (const auto word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    cuts.push_back(0);
    if (absl::SimpleAtoi(word, &cuts.back())) continue;
    return absl::InternalError(absl::StrCat("not a cut: ", word));
  }
  return cuts;
}

// The status, with the flag that asked for cuts that are not possible, if one
// did.
absl::Status AsAsked(const TrainOptions& options, const absl::Status& status) {
  const std::string& balance = options.pipeline.balance;
  return balance.empty()
             ? status
             : Annotate(status, absl::StrCat("--balance=", balance));
}

}  // namespace

int64_t LargestMicrobatch(int64_t samples, int64_t microbatches, int64_t size) {
  if (size > 0) return std::min(size, samples);
  return (samples + microbatches - 1) / microbatches;
}

absl::StatusOr<JobPartition> PartitionJob(
    const TrainOptions& options, const PartitionTask& task,
    const std::vector<c10::Device>& devices, const Dataset& data,
    Communicator& world) {
  absl::StatusOr<JobPartition> mine = JobPartition();
  if (world.rank() == 0) {
    mine = Partition(options, task, devices, data, world);
    if (!mine.ok()) mine = AsAsked(options, mine.status());
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(EncodePartition(mine), [] {
                            return "where the model is cut";
                          }));
  if (!mine.ok()) return mine.status();
  JobPartition partition = *std::move(mine);
  partition.schedule = task.schedule;
  TANDEM_ASSIGN_OR_RETURN(partition.cuts, DecodeCuts(all[0]));
  return partition;
}

namespace {

// Whether every device has all of the model.
bool IsInOnePiece(const TrainOptions& options) {
  const PipelineContext around = MakePipelineContext(options);
  return !IsPipeline(options.pipeline, around) &&
         (options.devices.devices_per_rank == 1 || IsDataParallel(around));
}

absl::StatusOr<PartitionTask> MakeTask(const TrainOptions& options,
                                       const LayerSpecs& layers,
                                       const JobData& data, int workers) {
  const PipelineSettings& pipeline = options.pipeline;
  PartitionTask task;
  task.specs = layers;
  task.loss = JobLoss(options);
  if (IsPipeline(pipeline, MakePipelineContext(options))) {
    // In a step.
    const int64_t replicas = workers / pipeline.pipe;
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
  const int64_t samples = ResolvedBatchSize(options) / workers;
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
  task.evaluation_batch = EvaluationBatch(options, data, samples, workers);
  return task;
}

}  // namespace

absl::StatusOr<JobPartition> MakePartition(
    const TrainOptions& options, const LayerSpecs& layers,
    const UpdateOptions& optimizers, const std::vector<c10::Device>& devices,
    const JobData& data, Communicator& world) {
  const LongTask preparing("cutting the model",
                           LongTask::SpeaksIf(world.rank() == 0));
  TANDEM_ASSIGN_OR_RETURN(
      PartitionTask task, MakeTask(options, layers, data,
                                   world.size() - ParameterServerCount(options)));
  task.optimizers = optimizers;
  if (IsInOnePiece(options)) return JobPartition{task.schedule, {}, ""};
  return PartitionJob(options, task, devices, *data.train, world);
}

absl::StatusOr<PlannedPartition> PlanPartition(const TrainOptions& options,
                                               const LayerSpecs& layers,
                                               const JobData& data,
                                               int workers) {
  TANDEM_ASSIGN_OR_RETURN(const PartitionTask task,
                          MakeTask(options, layers, data, workers));
  PlannedPartition planned;
  planned.microbatch = task.microbatch;
  if (!IsInOnePiece(options)) {
    const std::string flag = BalanceFor(options.pipeline);
    TANDEM_ASSIGN_OR_RETURN(BalanceRule rule, ParseBalance(flag));
    planned.is_measured_later = rule.kind == BalanceKind::kProfile;
    if (planned.is_measured_later) rule.kind = BalanceKind::kParameters;
    auto cut = Cut(rule, Outline(task.specs), task.schedule, {});
    if (!cut.ok()) return AsAsked(options, cut.status());
    planned.partition = *std::move(cut);
  }
  planned.partition.schedule = task.schedule;
  return planned;
}

}  // namespace tandem
