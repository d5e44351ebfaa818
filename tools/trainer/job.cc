#include "tools/trainer/job.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/layer_list.h"
#include "core/status_macros.h"
#include "datasets/loader.h"
#include "datasets/registry.h"
#include "models/classification_loss.h"
#include "models/registry.h"
#include "parallel/replicated.h"
#include "tools/trainer/apply_ddp_settings.h"
#include "tools/trainer/job_devices.h"
#include "tools/trainer/process.h"
#include "tools/trainer/save_folder.h"

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

absl::StatusOr<LayerList> MakeLayersFor(const TrainOptions& options,
                                        const Dataset& data) {
  ModelOptions model;
  model.name = options.model;
  model.input_shape = data.input_shape();
  model.classes = data.classes();
  model.tokens = data.tokens();
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs, MakeModel(model));
  return MakeLayers(specs, options.seed);
}

OptimizerOptions OptimizerOptionsOf(const TrainOptions& options,
                                    double weight_decay) {
  if (options.optimizer == "sgd") {
    SgdOptions sgd;
    sgd.momentum = options.momentum;
    sgd.nesterov = options.nesterov;
    sgd.weight_decay = weight_decay;
    return sgd;
  }
  if (options.optimizer == "adam") {
    AdamOptions adam;
    adam.weight_decay = weight_decay;
    return adam;
  }
  AdamWOptions adamw;
  adamw.weight_decay = weight_decay;
  return adamw;
}

// --no_weight_decay_on: a parameter group of its own.
absl::Status ExemptFromDecay(const TrainOptions& options,
                             const LayerList& layers,
                             ReplicatedOptions* replicated) {
  if (options.no_weight_decay_on.empty()) return absl::OkStatus();
  const auto exempt = [pattern = std::regex(options.no_weight_decay_on)](
                          const std::string& name) -> int64_t {
    return std::regex_search(name, pattern) ? 1 : 0;
  };
  std::vector<std::string> names;
  for (const auto& each : NamedParameters(layers)) names.push_back(each.first);
  if (std::none_of(names.begin(), names.end(), exempt)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--no_weight_decay_on=", options.no_weight_decay_on,
                     " matches no parameter of --model=", options.model,
                     ", which has ", absl::StrJoin(names, ", ")));
  }
  replicated->ddp.optimizer_group = exempt;
  replicated->further_optimizers = {OptimizerOptionsOf(options, 0)};
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(const Job& job) {
  TANDEM_ASSIGN_OR_RETURN(LayerList layers,
                          MakeLayersFor(job.options, *job.train_data));
  ReplicatedOptions replicated;
  replicated.seed = job.options.seed;
  replicated.optimizer =
      OptimizerOptionsOf(job.options, job.options.weight_decay);
  replicated.clip_norm = job.options.clip_grad_norm;
  replicated.clip_norm_type = job.options.clip_grad_norm_type;
  replicated.error_if_nonfinite = job.options.error_if_nonfinite;
  replicated.clip_value = job.options.clip_grad_value;
  TANDEM_RETURN_IF_ERROR(Apply(job.options.ddp, &replicated));
  TANDEM_RETURN_IF_ERROR(ExemptFromDecay(job.options, layers, &replicated));
  replicated.device = std::nullopt;
  if (job.devices.size() == 1) replicated.device = job.devices.front();
  TANDEM_ASSIGN_OR_RETURN(
      layers, PlaceLayers(std::move(layers), job.options.devices, job.devices));
  return Replicated::Create(std::move(layers), CrossEntropy, replicated,
                            *job.world);
}

}  // namespace

absl::Status CheckLayout(const TrainOptions& options, int world_size) {
  TANDEM_ASSIGN_OR_RETURN(const Mesh mesh,
                          Mesh::Create(world_size, /*pipe=*/1));
  TANDEM_RETURN_IF_ERROR(
      StrategyFor(mesh, static_cast<int>(options.devices.devices_per_rank),
                  options.strategy)
          .status());
  if (options.strategy == "pipeline") {
    return absl::UnimplementedError(
        "--strategy=pipeline: this version does not keep all devices of a rank "
        "busy at once; use --strategy=model_parallel");
  }
  return BatchSizePerReplica(options.batch_size, mesh.data()).status();
}

absl::StatusOr<Job> SetUpJob(const TrainOptions& options,
                             const Launch& launch) {
  Job job;
  job.options = options;
  job.launch = launch;
  TANDEM_ASSIGN_OR_RETURN(job.mesh,
                          Mesh::Create(launch.world_size, /*pipe=*/1));
  TANDEM_ASSIGN_OR_RETURN(
      job.batch_size_per_replica,
      BatchSizePerReplica(options.batch_size, job.mesh.data()));
  const bool binds = launch.launcher == "slurm" || launch.launcher == "openmpi";
  if (launch.rank == 0 && !options.eval_only) {
    TANDEM_RETURN_IF_ERROR(PrepareSaveFolder(options.save_dir));
  }
  job.intra_op_threads =
      IntraOpThreads(options.intra_op_threads, launch.local_world_size,
                     /*bound=*/binds && IsBoundToCores());
  ConfigureProcess(job.intra_op_threads);
  if (launch.world_size > 1) IgnoreBrokenConnections();
  TANDEM_ASSIGN_OR_RETURN(job.devices, PrepareDevices(options.devices, launch));
  TANDEM_ASSIGN_OR_RETURN(job.train_data, OpenData(options, Split::kTrain));
  TANDEM_ASSIGN_OR_RETURN(job.test_data, OpenData(options, Split::kTest));
  TANDEM_ASSIGN_OR_RETURN(job.world, Connect(options, launch));
  TANDEM_ASSIGN_OR_RETURN(job.strategy, MakeStrategy(job));
  return job;
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
