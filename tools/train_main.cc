// Top to bottom: what a rank sets up (mesh, connection, data, layers,
// partition, strategy), and TrainMain, which starts the ranks. The loop over
// epochs and steps: tools/trainer/training.cc.

#include "tools/train_main.h"

#include <c10/core/ScalarType.h>

#include <string>
#include <utility>
#include <vector>

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
#include "core/program/interrupt.h"
#include "core/program/logging.h"
#include "core/run/run_ranks.h"
#include "core/run/setup_failure.h"
#include "datasets/registry.h"
#include "models/registry.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/devices.h"
#include "tools/trainer/job/flops.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/job/kept_tokenizer.h"
#include "tools/trainer/job/kernels.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/partition.h"
#include "tools/trainer/job/save_folder.h"
#include "tools/trainer/job/strategy.h"
#include "tools/trainer/job/threads.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/job/weight_decay.h"
#include "tools/trainer/job/world.h"
#include "tools/trainer/job_check.h"
#include "tools/trainer/rehearsal/rehearsal_report.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"
#include "tools/trainer/replacement/generations.h"
#include "tools/trainer/replacement/replacement.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/report.h"
#include "tools/trainer/restarted_job.h"
#include "tools/trainer/run_report.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/training.h"

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains a network, on one rank or on many. Each job saves in a folder of\n"
    "its own: checkpoints, unless --save_dir says which.\n\n"
    "  train                                                  Fashion-MNIST\n"
    "  train --nproc_per_node=2 --save_dir=two_ranks          on two ranks\n"
    "  train --model=resnet18 --epochs=3 --save_dir=resnet18  ResNet-18\n";

// Of a process: once.
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
  TANDEM_ASSIGN_OR_RETURN(job.mesh, MeshOf(settings, job.launch.world_size));
  const int replicas = job.roster ? job.launched_ranks() : job.mesh.data();
  TANDEM_ASSIGN_OR_RETURN(job.batch_size_per_replica,
                          BatchSizeOf(settings, replicas));
  settings.batch_size = job.batch_size();  // of those who are there
  TANDEM_RETURN_IF_ERROR(PrepareHost(job));
  // Before anything that takes long or leaves something behind: ranks compare
  // their settings here.
  TANDEM_ASSIGN_OR_RETURN(job.world, Connect(settings, job.launch));
  TANDEM_RETURN_IF_ERROR(ResumeAfterRestart(job));
  job.kernels = KernelsOf(settings, *job.world);
  if (!settings.eval_only) {
    TANDEM_RETURN_IF_ERROR(
        PrepareSaveFolder(settings.save_dir, *job.world, &job.save_lock));
  }
  // On what data?
  TANDEM_ASSIGN_OR_RETURN(job.transformer, TransformerOf(settings));
  TANDEM_ASSIGN_OR_RETURN(job.data,
                          OpenData(settings, job.transformer, *job.world));
  if (!settings.eval_only) {
    TANDEM_RETURN_IF_ERROR(KeepTokenizer(settings, *job.world));
  }
  // Which model, as layers that are not made yet, and where is it cut?
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs layers,
                          LayersOf(settings, job.transformer, *job.data.train));
  TANDEM_ASSIGN_OR_RETURN(
      job.row_parts, RowPartsOf(settings, job.transformer, *job.data.train));
  if (settings.check_finite) {
    // Where the loss is scaled, gradients overflow now and then.
    const bool scaled = PrecisionOf(settings).param_dtype == c10::kHalf;
    layers = CheckedLayers(std::move(layers), {/*gradients=*/!scaled});
  }
  if (job.speaks()) {
    job.flops =
        FlopsOf(settings, job.transformer, *job.data.train,
                job.mesh.world_size() * static_cast<int>(job.devices.size()));
  }
  TANDEM_ASSIGN_OR_RETURN(
      const JobPartition partition,
      PartitionOf(settings, layers, job.devices, job.data, *job.world));
  job.partition = partition.table;
  // What of it this rank has, and how a step goes.
  TANDEM_ASSIGN_OR_RETURN(
      job.strategy, MakeStrategy(settings, layers, job.row_parts, partition,
                                 job.devices, *job.world));
  TANDEM_ASSIGN_OR_RETURN(
      job.exempt_from_decay,
      DescribeExempt(settings, *job.strategy, job.row_parts, *job.world));
  return absl::OkStatus();
}

absl::StatusOr<Report> OpenReport(const Job& job) {
  if (!job.speaks()) return Report::Silent();
  TANDEM_ASSIGN_OR_RETURN(MetricsFile metrics,
                          MetricsFile::Open(job.options.metrics_file));
  return Report::Speaking(std::move(metrics));
}

absl::Status StartLogging(const TrainOptions& settings, const Launch& launch) {
  LoggingOptions logging;
  logging.rank = launch.rank;
  logging.log_dir = settings.log_dir;
  return Annotate(InitLogging("train", logging),
                  absl::StrCat("--log_dir=", settings.log_dir));
}

absl::StatusOr<RestartCount> RestartsOfProcess() {
  return ReadRestartCount(Environment::OfProcess());
}

absl::Status RunJob(Job& job, Replacement* replacement) {
  const absl::Status ready = SetUp(job);
  if (!ready.ok()) {
    // While this rank, which may serve the store, is still connected.
    TellOfFailedSetUp(job.launch, ready);
    return ready;
  }
  TANDEM_ASSIGN_OR_RETURN(Report report, OpenReport(job));
  // From here on there is a loop that looks; until here a signal just ends us.
  HandleInterrupts();
  TANDEM_ASSIGN_OR_RETURN(RunReport run, RunReport::Start(job, report));
  if (job.is_restarted()) run.Say(DescribeAttempt(job));
  return ExplainNondeterminism(job.options.eval_only
                                   ? EvaluateOnly(job, run)
                                   : Train(job, run, replacement));
}

absl::Status RunRank(const Launch& launch) {
  Job job;
  job.launch = launch;
  TANDEM_ASSIGN_OR_RETURN(job.restarts, RestartsOfProcess());
  TANDEM_ASSIGN_OR_RETURN(job.options, TrainOptionsFromFlags());
  TANDEM_RETURN_IF_ERROR(StartLogging(job.options, launch));
  const RehearsalSettings rehearsal = RehearsalSettingsFromFlags();
  if (rehearsal.fake_weights) return Rehearse(rehearsal, job.options, launch);
  if (job.options.replace_replicas == 0) return RunJob(job, nullptr);
  return RunGenerations(std::move(job), RunJob);
}

// Workers of parameter servers.
bool CanBeLost(int rank) {
  const absl::StatusOr<TrainOptions> settings = TrainOptionsFromFlags();
  if (!settings.ok()) return false;
  const int servers = ServersOf(*settings);
  return servers > 0 && rank >= servers;
}

// The newest checkpoint; "": there is none.
std::string CheckpointOfRestart() {
  const absl::StatusOr<TrainOptions> settings = TrainOptionsFromFlags();
  return settings.ok() ? NewestCheckpoint(settings->save_dir) : "";
}

int MaxReplacements() {
  const absl::StatusOr<TrainOptions> settings = TrainOptionsFromFlags();
  return settings.ok() ? static_cast<int>(settings->replace_replicas) : 0;
}

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
  const auto check = [&](const Launch& first) {
    return registered.ok() ? CheckJob(first) : registered;
  };
  return RunRanks(argc, argv,
                  {"train", Usage(), check, RunRank, CanBeLost,
                   CheckpointOfRestart, MaxReplacements});
}

}  // namespace tandem
