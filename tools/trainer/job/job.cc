#include "tools/trainer/job/job.h"

#include <chrono>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_agreement.h"
#include "core/program/process.h"
#include "datasets/loader.h"
#include "datasets/registry.h"
#include "tools/trainer/job/job_devices.h"
#include "tools/trainer/job/job_strategy.h"
#include "tools/trainer/job/save_folder.h"
#include "core/run/setup_failure.h"
#include "tools/trainer/settings/pipeline_layout.h"
#include "tools/trainer/settings/settings_agreement.h"

namespace tandem {
namespace {

absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const TrainOptions& options, const Launch& launch) {
  CommunicatorOptions communication;
  communication.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1e3));
  communication.backend = options.backend;
  communication.interface = options.interface;
  communication.straggler_warning = std::chrono::milliseconds(
      static_cast<int64_t>(options.straggler_warning * 1e3));
  TANDEM_ASSIGN_OR_RETURN(communication.settings, SettingsOfJob());
  return Communicator::ForLaunch(launch, communication);
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenData(
    const TrainOptions& options, Split split) {
  DatasetOptions data;
  data.name = options.dataset;
  data.split = split;
  data.data_dir = options.data_dir;
  data.seed = options.seed;
  data.classes = options.synthetic_classes;
  data.length = split == Split::kTrain ? options.synthetic_samples
                                       : (options.synthetic_samples + 7) / 8;
  if (!options.synthetic_shape.empty()) {
    data.image_shape = options.synthetic_shape;
    data.context = options.synthetic_shape.front();
  }
  absl::StatusOr<std::shared_ptr<const Dataset>> dataset = MakeDataset(data);
  if (dataset.ok()) return dataset;
  return Annotate(
      dataset.status(),
      absl::StrCat(
          "--dataset=", options.dataset,
          options.data_dir.empty() ? "" : " --data_dir=" + options.data_dir));
}

// What ranks can tell of their data sets, which may be files of their own.
NamedValues DescribeData(const Job& job) {
  return {
      {"the training set's size", absl::StrCat(job.train_data->size())},
      {"the test set's size", absl::StrCat(job.test_data->size())},
      {"a sample's shape", absl::StrJoin(job.train_data->input_shape(), "x")},
      {"the number of classes", absl::StrCat(job.train_data->classes())}};
}

absl::StatusOr<int> ThreadsOf(const TrainOptions& options,
                              const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(
      int requested,
      RequestedThreads(options.intra_op_threads, kMostIntraOpThreads));
  // The number of threads shows in the bits of sums.
  if (options.pipeline.reproducible && options.intra_op_threads == 0) {
    requested = 1;
  }
  CoreSharing sharing;
  sharing.ranks = launch.local_world_size;
  // A rank's devices work at once in a pipeline.
  if (IsPipeline(options.pipeline, SurroundingsOf(options))) {
    sharing.threads_of_rank =
        static_cast<int>(options.devices.devices_per_rank);
  }
  const bool binds = launch.launcher == "slurm" || launch.launcher == "openmpi";
  sharing.bound = binds && IsBoundToCores();
  return IntraOpThreads(requested, sharing);
}

// What each replica has of a step.
absl::StatusOr<int64_t> BatchSizeOf(const TrainOptions& options, int replicas) {
  const auto size = BatchSizePerReplica(options.batch_size, replicas);
  if (size.ok()) return size;
  return Annotate(size.status(),
                  absl::StrCat("--batch_size=", options.batch_size));
}

// A part of a batch has one sample at least.
absl::Status CheckAccumulation(const TrainOptions& options,
                               int64_t batch_size_per_replica) {
  const int64_t parts = options.ddp.gradient_accumulation_steps;
  if (parts <= batch_size_per_replica) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--gradient_accumulation_steps=", parts, ": a rank has ",
      batch_size_per_replica, " samples of --batch_size=", options.batch_size,
      " to cut into so many parts; give ", batch_size_per_replica,
      " at most, or a larger batch"));
}

}  // namespace

absl::Status CheckLayout(const TrainOptions& options, int world_size) {
  const auto pipe = static_cast<int>(options.pipeline.pipe);
  const auto mesh = Mesh::Create(world_size, pipe);
  if (!mesh.ok()) {
    return Annotate(mesh.status(), absl::StrCat("--pipe=", pipe));
  }
  const absl::Status strategy =
      StrategyFor(*mesh, static_cast<int>(options.devices.devices_per_rank),
                  options.strategy)
          .status();
  TANDEM_RETURN_IF_ERROR(
      Annotate(strategy, absl::StrCat("--strategy=", options.strategy)));
  TANDEM_RETURN_IF_ERROR(CheckReplicas(options, mesh->data()));
  TANDEM_ASSIGN_OR_RETURN(const int64_t batch_size,
                          BatchSizeOf(options, mesh->data()));
  TANDEM_RETURN_IF_ERROR(CheckAccumulation(options, batch_size));
  TANDEM_RETURN_IF_ERROR(
      RequestedThreads(options.intra_op_threads, kMostIntraOpThreads).status());
  return CheckLayout(options.pipeline, SurroundingsOf(options), world_size);
}

namespace {

// Those whose names are not there yet.
void Append(const SettingValues& more, SettingValues* values) {
  const auto known = *values;
  for (const auto& each : more) {
    const bool there = absl::c_any_of(
        known, [&](const auto& one) { return one.first == each.first; });
    if (!there) values->push_back(each);
  }
}

absl::Status FillJob(const TrainOptions& options, const Launch& launch,
                     Job& job) {
  job.options = options;
  job.launch = launch;
  TANDEM_ASSIGN_OR_RETURN(
      job.mesh,
      Mesh::Create(launch.world_size, static_cast<int>(options.pipeline.pipe)));
  TANDEM_ASSIGN_OR_RETURN(job.batch_size_per_replica,
                          BatchSizeOf(options, job.mesh.data()));
  TANDEM_ASSIGN_OR_RETURN(job.intra_op_threads, ThreadsOf(options, launch));
  ConfigureProcess(job.intra_op_threads);
  if (launch.world_size > 1) IgnoreBrokenConnections();
  TANDEM_ASSIGN_OR_RETURN(job.devices, PrepareDevices(options.devices, launch));
  // Before anything that takes long or leaves something behind: ranks compare
  // their settings here.
  TANDEM_ASSIGN_OR_RETURN(job.world, Connect(options, launch));
  if (launch.rank == 0 && !options.eval_only) {
    TANDEM_RETURN_IF_ERROR(PrepareSaveFolder(options.save_dir));
  }
  TANDEM_ASSIGN_OR_RETURN(job.train_data, OpenData(options, Split::kTrain));
  TANDEM_ASSIGN_OR_RETURN(job.test_data, OpenData(options, Split::kTest));
  TANDEM_RETURN_IF_ERROR(
      AgreeInGroup(DescribeData(job), "data sets", *job.world));
  TANDEM_ASSIGN_OR_RETURN(
      JobStrategy made,
      MakeJobStrategy(options, job.devices, *job.train_data, *job.world));
  job.strategy = std::move(made.strategy);
  job.partition = std::move(made.partition);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> SetUpJob(const TrainOptions& options,
                             const Launch& launch) {
  Job job;
  const absl::Status filled = FillJob(options, launch, job);
  if (filled.ok()) return job;
  // While this rank, which may serve the store, is still connected.
  TellOfFailedSetUp(launch, filled);
  return filled;
}

JobDescription DescribeJob(const Job& job) {
  const SettingValues resolved = {
      {"model", job.options.model},
      {"dataset", job.options.dataset},
      {"training_samples", job.train_data->size()},
      {"test_samples", job.test_data->size()},
      {"batch_size", job.options.batch_size},
      {"batch_per_replica", job.batch_size_per_replica},
      {"optimizer", job.options.optimizer},
      {"learning_rate", ResolvedLearningRate(job.options)},
      {"strategy", job.strategy->name()},
      {"mesh", job.mesh.ToString()},
      {"launcher", job.launch.launcher},
      {"intra_op_threads", int64_t{job.intra_op_threads}},
  };
  const SettingValues given = Describe(job.options);
  JobDescription description = {resolved, resolved};
  Append(given, &description.all);
  Append(job.options.show_settings ? given
                                   : Differing(given, Describe(TrainOptions())),
         &description.shown);
  return description;
}

}  // namespace tandem
