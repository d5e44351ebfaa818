// Trains a model, on one rank or on many. Top to bottom: what a rank sets up
// for a job, the loop over epochs and steps, and TrainMain, which starts the
// ranks. docs/training.md, or --help.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/determinism.h"
#include "core/finite/checked_layers.h"
#include "core/launch/launch.h"
#include "core/launch/restarts.h"
#include "core/model/batch.h"
#include "core/program/interrupt.h"
#include "core/program/logging.h"
#include "core/program/openmp_waits.h"
#include "core/run/run_ranks.h"
#include "core/run/setup_failure.h"
#include "datasets/registry.h"
#include "models/registry.h"
#include "parallel/strategy/strategy.h"
#include "tools/train_main.h"
#include "tools/trainer/dry_run/dry_run.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/devices.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/optimizer_groups.h"
#include "tools/trainer/job/partition.h"
#include "tools/trainer/job/process.h"
#include "tools/trainer/job/save_folder.h"
#include "tools/trainer/job/strategy.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/job_check.h"
#include "tools/trainer/rehearsal/rehearsal_report.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"
#include "tools/trainer/replacement/replacement.h"
#include "tools/trainer/report/report.h"
#include "tools/trainer/run_report.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/train_guide.h"
#include "tools/trainer/training.h"

namespace tandem {
namespace {

// A process takes these once, however often its job is set up.
absl::Status PrepareHost(Job& job) {
  if (!job.devices.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(job.intra_op_threads,
                          TakeThreads(job.options, job.launch));
  TANDEM_ASSIGN_OR_RETURN(job.devices, PrepareDevices(job.options, job.launch));
  return absl::OkStatus();
}

// From settings to a strategy that can train. Collective.
absl::Status SetUp(Job& job) {
  TrainOptions settings = job.options;
  // Where on the mesh, and on which devices?
  TANDEM_ASSIGN_OR_RETURN(job.mesh, JobMesh(settings, job.launch.world_size));
  TANDEM_ASSIGN_OR_RETURN(job.batch_size_per_replica,
                          ReplicaBatchSize(settings, job.launched_replicas()));
  settings.batch_size = job.batch_size();  // of the replicas that are there
  TANDEM_RETURN_IF_ERROR(PrepareHost(job));
  // Before anything that takes long or leaves something behind: ranks compare
  // their settings here.
  TANDEM_ASSIGN_OR_RETURN(job.world, Connect(settings, job.launch));
  TANDEM_RETURN_IF_ERROR(ResumeAfterRestart(job));
  job.kernels = MakeJobKernels(settings, *job.world);
  if (!settings.eval_only) {
    TANDEM_RETURN_IF_ERROR(
        PrepareSaveFolder(settings.save_dir, *job.world, &job.save_folder));
  }
  // On what data?
  TANDEM_ASSIGN_OR_RETURN(job.transformer, JobTransformer(settings));
  TANDEM_ASSIGN_OR_RETURN(job.data,
                          OpenData(settings, job.transformer, *job.world));
  if (!settings.eval_only) {
    TANDEM_RETURN_IF_ERROR(KeepTokenizer(settings, *job.world));
  }
  // Which model, as layers that are not made yet, and where is it cut?
  TANDEM_ASSIGN_OR_RETURN(
      LayerSpecs layers, JobLayers(settings, job.transformer, *job.data.train));
  TANDEM_ASSIGN_OR_RETURN(
      job.row_parts, ModelRowParts(settings, job.transformer, *job.data.train));
  TANDEM_ASSIGN_OR_RETURN(
      job.adapters, JobAdapters(settings, job.transformer, *job.data.train));
  if (settings.check_finite) {
    // Where the loss is scaled, gradients overflow now and then.
    const bool scaled = RequestedPrecision(settings).param_dtype == c10::kHalf;
    layers = CheckedLayers(std::move(layers), {/*gradients=*/!scaled});
  }
  if (job.is_rank_zero()) {
    job.flops = ModelFlops(
        settings, job.transformer, *job.data.train,
        job.mesh.world_size() * static_cast<int>(job.devices.size()));
  }
  TANDEM_ASSIGN_OR_RETURN(const OptimizerGroups groups,
                          MakeOptimizerGroups(settings, layers, job.row_parts));
  job.optimizer_groups = groups.description;
  const JobModel model = {layers, JobLoss(settings, job.transformer),
                          groups.update};
  TANDEM_ASSIGN_OR_RETURN(
      const JobPartition partition,
      MakePartition(settings, model, job.devices, job.data, *job.world));
  job.partition = partition.table;
  if (!partition.microbatches.empty()) {
    job.microbatches = partition.schedule.microbatches;
    job.microbatches_tried = partition.microbatches;
  }
  // What this rank has of the model, and how a step goes.
  TANDEM_ASSIGN_OR_RETURN(job.strategy, MakeStrategy(settings, model, partition,
                                                     job.devices, *job.world));
  TANDEM_ASSIGN_OR_RETURN(
      job.exempt_from_decay,
      DescribeExempt(settings, *job.strategy, job.row_parts, *job.world));
  return absl::OkStatus();
}

// The steps of an epoch that are left. What else comes before and after a step
// (its report, a trace, saving and stopping) is tools/trainer/training.h's.
absl::Status TrainEpoch(Training& run, Strategy& strategy, int64_t epoch) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t steps, run.StartEpoch(epoch));
  for (int64_t i = 0; i < steps && !run.stops_early(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(const Batch batch, run.NextBatch());
    TANDEM_ASSIGN_OR_RETURN(const RunReport::Step step, run.BeginStep(epoch));
    // Forward, backward, what replicas exchange, and the update.
    TANDEM_RETURN_IF_ERROR(strategy.SubmitStep(batch, step.learning_rate));
    TANDEM_RETURN_IF_ERROR(run.EndStep(step));
    TANDEM_RETURN_IF_ERROR(run.CheckReplicasIfDue());
    TANDEM_RETURN_IF_ERROR(run.SaveIfDue());
    TANDEM_RETURN_IF_ERROR(run.EvaluateIfDue(epoch));
    TANDEM_RETURN_IF_ERROR(run.ShowSampleIfDue());
    TANDEM_RETURN_IF_ERROR(run.StopIfAsked());
  }
  return run.EndEpoch(epoch);
}

absl::Status TrainEpochs(Training& run, Strategy& strategy) {
  for (int64_t epoch = run.epoch(); run.goes_on(); ++epoch) {
    TANDEM_RETURN_IF_ERROR(TrainEpoch(run, strategy, epoch));
  }
  return absl::OkStatus();
}

// Trains, evaluates, saves and reports. Cancelled when a signal asked to stop,
// after a checkpoint of the step that all ranks stop after. With `replacement`
// it begins as that has it, and ends with an error, too, where its generation
// does. Collective.
absl::Status Train(Job& job, RunReport& report, Replacement* replacement) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Training> run,
                          Training::Start(job, report, replacement));
  return run->Finish(TrainEpochs(*run, *job.strategy));
}

absl::Status RunJob(Job& job, Replacement* replacement) {
  // What is refused leaves nothing behind.
  const absl::Cleanup tidy = [&job] { RemoveUnusedFolder(job.save_folder); };
  const absl::Status ready = SetUp(job);
  if (!ready.ok()) {
    // While this rank, which may serve the store, is still connected.
    ReportSetupFailure(job.launch, ready);
    return ready;
  }
  TANDEM_ASSIGN_OR_RETURN(Report report, OpenReport(job));
  // From here on there is a loop that looks; until here a signal just ends us.
  HandleInterrupts();
  TANDEM_ASSIGN_OR_RETURN(RunReport run, RunReport::Start(job, report));
  if (job.is_restarted()) run.Say(DescribeAttempt(job));
  const absl::Status ended = ExplainNondeterminism(
      job.options.eval_only ? EvaluateOnly(job, run)
                            : Train(job, run, replacement));
  return report.WritePage(ended);
}

absl::Status StartLogging(const TrainOptions& settings, const Launch& launch) {
  LoggingOptions logging;
  logging.rank = launch.rank;
  logging.log_dir = settings.log_dir;
  return Annotate(InitLogging("train", logging),
                  absl::StrCat("--log_dir=", settings.log_dir));
}

absl::Status RunRank(const Launch& launch) {
  Job job;
  job.launch = launch;
  TANDEM_ASSIGN_OR_RETURN(job.restarts,
                          ReadRestartCount(Environment::OfProcess()));
  TANDEM_ASSIGN_OR_RETURN(job.options, TrainOptionsFromFlags());
  TANDEM_RETURN_IF_ERROR(StartLogging(job.options, launch));
  const RehearsalSettings rehearsal = RehearsalSettingsFromFlags();
  if (rehearsal.fake_weights) return Rehearse(rehearsal, job.options, launch);
  if (job.options.replace_replicas == 0) return RunJob(job, nullptr);
  return RunGenerations(std::move(job), RunJob);
}

// --dry_run needs no ranks.
std::optional<absl::Status> DryRunIfAsked(const Launch& first) {
  const absl::StatusOr<TrainOptions> options = TrainOptionsFromFlags();
  if (!options.ok()) return options.status();
  if (!options->dry_run) return std::nullopt;
  return DryRun(*options, first);
}

constexpr char kUsage[] =
    "Trains a network, on one rank or on many. Each job saves in a folder of\n"
    "its own: checkpoints, unless --save_dir says which.\n\n"
    "  train                                                  Fashion-MNIST\n"
    "  train --nproc_per_node=2 --save_dir=two_ranks          on two ranks\n"
    "  train --model=resnet18 --epochs=3 --save_dir=resnet18  ResNet-18\n";

// What --help says above the flags, which know of no registered name.
std::string Usage() {
  std::string usage = kUsage;
  const auto add = [&](const char* flag,
                       const std::vector<std::string>& names) {
    if (names.empty()) return;
    absl::StrAppend(&usage, "\n--", flag, " takes this program's own, too: ",
                    absl::StrJoin(names, ", "), "\n");
  };
  add("model", RegisteredModels());
  add("dataset", RegisteredDatasets());
  return usage;
}

}  // namespace

int TrainMain(int argc, char** argv, const absl::Status& registered) {
  WaitPassivelyWhereBusy(argc, argv);
  const auto check = [&](const Launch& first) {
    return registered.ok() ? CheckJob(first) : registered;
  };
  return RunRanks(argc, argv,
                  {"train", TrainGuide(Usage()), check, RunRank, CanBeLost,
                   RestartCheckpoint, MaxReplacements, DryRunIfAsked});
}

}  // namespace tandem
