#include "tools/trainer/job.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"
#include "datasets/loader.h"
#include "datasets/registry.h"
#include "tools/trainer/job_devices.h"
#include "tools/trainer/job_strategy.h"
#include "tools/trainer/pipeline_layout.h"
#include "tools/trainer/process.h"
#include "tools/trainer/save_folder.h"
#include "tools/trainer/setup_failure.h"

namespace tandem {
namespace {

absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const TrainOptions& options, const Launch& launch) {
  CommunicatorOptions communication;
  communication.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1e3));
  communication.backend = options.backend;
  communication.interface = options.interface;
  communication.straggler_warning = std::chrono::milliseconds(
      static_cast<int64_t>(options.straggler_warning_s * 1e3));
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
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset,
                          MakeDataset(data));
  return dataset;
}

// How many threads issue work at once: a rank's devices do in a pipeline.
int ThreadsOfHost(const TrainOptions& options, const Launch& launch) {
  const bool at_once = IsPipeline(options.pipeline, SurroundingsOf(options));
  const auto devices = static_cast<int>(options.devices.devices_per_rank);
  return launch.local_world_size * (at_once ? devices : 1);
}

}  // namespace

absl::Status CheckLayout(const TrainOptions& options, int world_size) {
  const auto pipe = static_cast<int>(options.pipeline.pipe);
  TANDEM_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create(world_size, pipe));
  TANDEM_RETURN_IF_ERROR(
      StrategyFor(mesh, static_cast<int>(options.devices.devices_per_rank),
                  options.strategy)
          .status());
  TANDEM_RETURN_IF_ERROR(
      BatchSizePerReplica(options.batch_size, mesh.data()).status());
  return CheckLayout(options.pipeline, SurroundingsOf(options), world_size);
}

namespace {

absl::Status FillJob(const TrainOptions& options, const Launch& launch,
                     Job& job) {
  job.options = options;
  job.launch = launch;
  TANDEM_ASSIGN_OR_RETURN(
      job.mesh,
      Mesh::Create(launch.world_size, static_cast<int>(options.pipeline.pipe)));
  TANDEM_ASSIGN_OR_RETURN(
      job.batch_size_per_replica,
      BatchSizePerReplica(options.batch_size, job.mesh.data()));
  const bool binds = launch.launcher == "slurm" || launch.launcher == "openmpi";
  if (launch.rank == 0 && !options.eval_only) {
    TANDEM_RETURN_IF_ERROR(PrepareSaveFolder(options.save_dir));
  }
  // The number of threads shows in the bits of sums.
  const bool one = options.pipeline.reproducible;
  job.intra_op_threads = IntraOpThreads(
      one && options.intra_op_threads == 0 ? 1 : options.intra_op_threads,
      ThreadsOfHost(options, launch),
      /*bound=*/binds && IsBoundToCores());
  ConfigureProcess(job.intra_op_threads);
  if (launch.world_size > 1) IgnoreBrokenConnections();
  TANDEM_ASSIGN_OR_RETURN(job.devices, PrepareDevices(options.devices, launch));
  TANDEM_ASSIGN_OR_RETURN(job.train_data, OpenData(options, Split::kTrain));
  TANDEM_ASSIGN_OR_RETURN(job.test_data, OpenData(options, Split::kTest));
  TANDEM_ASSIGN_OR_RETURN(job.world, Connect(options, launch));
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

Report::Settings DescribeJob(const Job& job) {
  Report::Settings settings = {
      {"strategy", job.strategy->name()},
      {"mesh", job.mesh.ToString()},
      {"launcher", job.launch.launcher},
      {"batch_per_replica", absl::StrCat(job.batch_size_per_replica)},
      {"intra_op_threads", absl::StrCat(job.intra_op_threads)},
      {"training_samples", absl::StrCat(job.train_data->size())},
      {"test_samples", absl::StrCat(job.test_data->size())},
  };
  const Report::Settings asked = Describe(job.options);
  settings.insert(settings.begin(), asked.begin(), asked.end());
  return settings;
}

}  // namespace tandem
