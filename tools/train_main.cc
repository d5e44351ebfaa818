// Top to bottom: what a rank sets up (mesh, connection, data, layers,
// partition, strategy), the loop over epochs and steps, and TrainMain, which
// starts the ranks.

#include "tools/train_main.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/determinism.h"
#include "core/instrument/fault_point.h"
#include "core/launch/launch.h"
#include "core/program/interrupt.h"
#include "core/program/logging.h"
#include "core/run/run_ranks.h"
#include "core/run/setup_failure.h"
#include "datasets/registry.h"
#include "models/registry.h"
#include "tools/trainer/evaluation.h"
#include "tools/trainer/initial_weights.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/devices.h"
#include "tools/trainer/job/flops.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/job/kernels.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/partition.h"
#include "tools/trainer/job/save_folder.h"
#include "tools/trainer/job/strategy.h"
#include "tools/trainer/job/threads.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/job/world.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/report.h"
#include "tools/trainer/run_report.h"
#include "tools/trainer/saving.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/step_trace.h"
#include "tools/trainer/training_set.h"

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains a network, on one rank or on many.\n\n"
    "  train                              Fashion-MNIST, one epoch, all cores\n"
    "  train --nproc_per_node=2           the same on two ranks\n"
    "  train --model=resnet18 --epochs=3  another network, for longer\n";

// From settings to a strategy that can train. Collective.
absl::Status SetUp(Job& job) {
  const TrainOptions& settings = job.options;
  // Where on the mesh, and on which devices?
  TANDEM_ASSIGN_OR_RETURN(job.mesh, MeshOf(settings, job.launch.world_size));
  TANDEM_ASSIGN_OR_RETURN(job.batch_size_per_replica,
                          BatchSizeOf(settings, job.mesh.data()));
  TANDEM_ASSIGN_OR_RETURN(job.intra_op_threads,
                          TakeThreads(settings, job.launch));
  TANDEM_ASSIGN_OR_RETURN(job.devices, PrepareDevices(settings, job.launch));
  // Before anything that takes long or leaves something behind: ranks compare
  // their settings here.
  TANDEM_ASSIGN_OR_RETURN(job.world, Connect(settings, job.launch));
  job.kernels = KernelsOf(settings, *job.world);
  if (job.speaks() && !settings.eval_only) {
    TANDEM_RETURN_IF_ERROR(PrepareSaveFolder(settings.save_dir));
  }
  // On what data?
  TANDEM_ASSIGN_OR_RETURN(job.data, OpenData(settings, *job.world));
  // Which model, as layers that are not made yet, and where is it cut?
  TANDEM_ASSIGN_OR_RETURN(job.transformer, TransformerOf(settings));
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs layers,
                          LayersOf(settings, job.transformer, *job.data.train));
  if (job.speaks()) {
    job.flops =
        FlopsOf(settings, job.transformer, *job.data.train,
                job.mesh.world_size() * static_cast<int>(job.devices.size()));
  }
  TANDEM_ASSIGN_OR_RETURN(
      const JobPartition partition,
      PartitionOf(settings, layers, job.devices, *job.data.train, *job.world));
  job.partition = partition.table;
  // What of it this rank has, and how a step goes.
  TANDEM_ASSIGN_OR_RETURN(
      job.strategy,
      MakeStrategy(settings, layers, partition, job.devices, *job.world));
  return absl::OkStatus();
}

// A job that trains.
struct Training {
  Job& job;
  TrainingSet set;
  TrainPosition position;
  Saver saver;
  RunReport& report;

  bool done() const { return position.step >= set.steps_in_all(); }
};

absl::Status TrainStep(Training& run, int64_t epoch) {
  Job& job = run.job;
  TANDEM_ASSIGN_OR_RETURN(const Batch batch, run.set.Next());
  if (InterruptSignal() != 0) return InterruptError();
  RunReport::Step step;
  step.epoch = epoch;
  step.done = run.position.step + 1;
  step.in_all = run.set.steps_in_all();
  step.samples = run.set.SamplesOfStep(run.position.sampler, epoch);
  step.learning_rate = run.set.LearningRate(run.position.step);
  run.report.BeginStep(run.position.step);
  SetFaultContext(job.launch.rank, step.done);
  const bool traced = StartStepTrace(job.options, step.done);

  if (run.report.IsShown(step)) job.strategy->MeasureGradientNorm();
  TANDEM_RETURN_IF_ERROR(job.strategy->SubmitStep(batch, step.learning_rate));

  run.position = {step.done, run.set.state()};
  TANDEM_RETURN_IF_ERROR(run.report.EndStep(step));
  run.report.SayGraph(job.strategy->DescribeGraph());
  if (!traced) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  return WriteStepTrace(job.options.trace_file, *job.world);
}

// Of steps that have come to something.
absl::Status Save(Training& run) {
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  TANDEM_RETURN_IF_ERROR(run.saver.Save(run.position));
  run.report.Pause();
  return absl::OkStatus();
}

absl::Status Evaluate(Job& job, RunReport& report, int64_t epoch) {
  TANDEM_RETURN_IF_ERROR(job.strategy->Synchronise());
  TANDEM_ASSIGN_OR_RETURN(const Score score,
                          EvaluateTestSet(job, report.report()));
  return report.ShowEvaluation(epoch, score);
}

absl::Status TrainEpoch(Training& run, int64_t epoch) {
  const int64_t save_every = run.job.options.save_every;
  const int64_t steps = run.set.StartEpoch(epoch, run.position.step);
  run.report.StartEpoch(epoch, steps);
  for (int64_t i = 0; i < steps; ++i) {
    TANDEM_RETURN_IF_ERROR(TrainStep(run, epoch));
    if (save_every > 0 && run.position.step % save_every == 0) {
      TANDEM_RETURN_IF_ERROR(Save(run));
    }
  }
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  run.report.EndEpoch();
  if (steps == 0) return absl::OkStatus();
  // First of all: nothing that comes now may cost the epoch.
  TANDEM_RETURN_IF_ERROR(Save(run));
  return Evaluate(run.job, run.report, epoch);
}

// What --resume names, or the beginning, with the weights of --init_from.
absl::StatusOr<TrainPosition> Resume(Job& job, RunReport& report) {
  const std::string& path = job.options.resume;
  if (path.empty() && !job.options.init_from.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string loaded, LoadInitialWeights(job));
    report.Say(loaded);
  }
  if (path.empty()) return TrainPosition();
  TANDEM_ASSIGN_OR_RETURN(const TrainPosition position, ResumeJob(job, path));
  job.strategy->ResumeAt(position.step);
  report.Say(absl::StrFormat("resumed %s at step %d", path, position.step));
  return position;
}

// Trains, evaluates, saves and reports. Collective. Cancelled when an interrupt
// asked to stop; what was saved before stays.
absl::Status Train(Job& job, RunReport& report) {
  TANDEM_ASSIGN_OR_RETURN(TrainingSet set, TrainingSet::Open(job));
  TANDEM_ASSIGN_OR_RETURN(const TrainPosition position, Resume(job, report));
  const bool resumed = !job.options.resume.empty();
  if (resumed) TANDEM_RETURN_IF_ERROR(set.Restore(position.sampler));
  Training run = {job, std::move(set), position,
                  Saver(job, resumed ? position.step : -1), report};
  int64_t epoch = position.sampler.epoch;
  if (run.done()) {
    report.Say(absl::StrFormat(
        "nothing left to train: step %d of %d is done; give more --epochs or "
        "--max_steps",
        position.step, run.set.steps_in_all()));
    TANDEM_RETURN_IF_ERROR(Evaluate(job, report, epoch));
  }
  for (; !run.done(); ++epoch) TANDEM_RETURN_IF_ERROR(TrainEpoch(run, epoch));
  return report.Summarise(run.saver.path());
}

absl::Status EvaluateOnly(Job& job, RunReport& report) {
  TANDEM_ASSIGN_OR_RETURN(const TrainPosition position, Resume(job, report));
  TANDEM_RETURN_IF_ERROR(Evaluate(job, report, position.sampler.epoch));
  return report.Summarise(/*checkpoint=*/"");
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

absl::Status RunRank(const Launch& launch) {
  Job job;
  job.launch = launch;
  TANDEM_ASSIGN_OR_RETURN(job.options, TrainOptionsFromFlags());
  TANDEM_RETURN_IF_ERROR(StartLogging(job.options, launch));
  const absl::Status ready = SetUp(job);
  if (!ready.ok()) {
    // While this rank, which may serve the store, is still connected.
    TellOfFailedSetUp(launch, ready);
    return ready;
  }
  TANDEM_ASSIGN_OR_RETURN(Report report, OpenReport(job));
  // From here on there is a loop that looks; until here a signal just ends us.
  HandleInterrupts();
  TANDEM_ASSIGN_OR_RETURN(RunReport run, RunReport::Start(job, report));
  return ExplainNondeterminism(job.options.eval_only ? EvaluateOnly(job, run)
                                                     : Train(job, run));
}

// Before any rank is started: one line, not one a rank.
absl::Status CheckSettings(const absl::Status& registered,
                           const Launch& first) {
  TANDEM_RETURN_IF_ERROR(registered);
  TANDEM_ASSIGN_OR_RETURN(const TrainOptions settings, TrainOptionsFromFlags());
  return CheckLayout(settings, first.world_size);
}

// Workers of parameter servers.
bool CanBeLost(int rank) {
  const absl::StatusOr<TrainOptions> settings = TrainOptionsFromFlags();
  if (!settings.ok()) return false;
  const int servers = ServersOf(*settings);
  return servers > 0 && rank >= servers;
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
    return CheckSettings(registered, first);
  };
  return RunRanks(argc, argv, {"train", Usage(), check, RunRank, CanBeLost});
}

}  // namespace tandem
