#include "tools/trainer/job/job.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/edit_distance.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/program/process.h"
#include "datasets/loader.h"
#include "models/hugging_face/model_config.h"
#include "parallel/sharding/optimizer_sharding.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {
namespace {

// What a strategy can run: how many replicas, and what each of them is on.
struct Needs {
  const char* name;
  bool one_replica;
  bool several_replicas;
  bool one_device;
  bool several_devices;  // of one rank
  bool several_ranks;
  bool divided_layers;  // among ranks (--tensor)
  const char* text;
};

constexpr Needs kStrategies[] = {
    {"single", true, false, true, false, false, true,
     "one replica on one device"},
    {"ddp", true, true, true, true, false, true, "replicas of one rank each"},
    {"data_parallel", true, true, false, true, false, false,
     "replicas on the several devices of each rank"},
    {"model_parallel", true, false, false, true, false, true,
     "one replica on several devices of one rank"},
    {"pipeline", true, false, false, true, true, true,
     "one replica on several devices"},
    {"hybrid", true, true, true, true, true, true, "any replicas"},
    {"parameter_server", true, true, true, true, false, false,
     "workers of one rank each, beside servers"},
};

std::string DefaultStrategy(const Mesh& mesh, int devices_per_rank) {
  if (mesh.pipe() > 1) return mesh.replicas() > 1 ? "hybrid" : "pipeline";
  if (mesh.replicas() > 1) return "ddp";
  return devices_per_rank > 1 ? "model_parallel" : "single";
}

bool Fits(const Needs& strategy, const Mesh& mesh, int devices_per_rank) {
  if (mesh.replicas() > 1 ? !strategy.several_replicas
                          : !strategy.one_replica) {
    return false;
  }
  if (mesh.degree(kTensorAxis) > 1 && !strategy.divided_layers) return false;
  if (mesh.pipe() > 1) return strategy.several_ranks;
  return devices_per_rank > 1 ? strategy.several_devices : strategy.one_device;
}

// A part of a batch has one sample at least.
absl::Status CheckAccumulation(const TrainOptions& options,
                               int64_t batch_size_per_replica) {
  const int64_t parts = options.ddp.gradient_accumulation_steps;
  if (parts <= batch_size_per_replica) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--gradient_accumulation_steps=", parts, ": a rank has ",
      batch_size_per_replica, " samples of ", BatchSizeAsGiven(options),
      " to cut into so many parts; give ", batch_size_per_replica,
      " at most, or a larger batch"));
}

}  // namespace

std::vector<std::string> StrategyNames() {
  std::vector<std::string> names = {"auto"};
  for (const Needs& strategy : kStrategies) names.push_back(strategy.name);
  return names;
}

absl::StatusOr<int64_t> ReplicaBatchSize(const TrainOptions& options,
                                         int replicas) {
  TANDEM_RETURN_IF_ERROR(CheckTokensPerStep(options, replicas));
  const auto size = BatchSizePerReplica(ResolvedBatchSize(options), replicas);
  if (size.ok()) return size;
  return Annotate(size.status(), BatchSizeAsGiven(options));
}

absl::StatusOr<Mesh> JobMesh(const TrainOptions& options, int world_size) {
  const int servers = ParameterServerCount(options);
  if (servers >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--servers=", servers, " of ", world_size, " rank(s) leave no worker: ",
        "start ", servers + 1, " ranks or more (--nproc_per_node)"));
  }
  const int workers = world_size - servers;
  const auto ranks = static_cast<int>(RanksOfReplica(options.pipeline));
  MeshDegrees degrees;
  degrees.pipe = static_cast<int>(options.pipeline.pipe);
  degrees.tensor = static_cast<int>(options.pipeline.tensor);
  degrees.shard = ShardDegree(ShardingNamed(options.ddp.shard),
                              static_cast<int>(options.ddp.data_shard),
                              std::max(1, workers / ranks));
  auto mesh = Mesh::Create(workers, degrees);
  if (mesh.ok()) return mesh;
  std::string given = absl::StrCat("--pipe=", degrees.pipe);
  if (degrees.tensor > 1) {
    absl::StrAppend(&given, " --tensor=", degrees.tensor);
  }
  const int multiple = ranks * (options.ddp.data_shard > 0 ? degrees.shard : 1);
  if (options.ddp.data_shard > 0) {
    absl::StrAppend(&given, " --data_shard=", options.ddp.data_shard);
  }
  if (workers % multiple == 0) return Annotate(mesh.status(), given);
  return absl::InvalidArgumentError(absl::StrCat(
      given, ": the model takes ", multiple,
      " ranks or a multiple, but this "
      "job has ",
      workers,
      ": give --nproc_per_node=", (workers / multiple + 1) * multiple));
}

absl::Status CheckLayout(const TrainOptions& options, int world_size) {
  const auto mesh = JobMesh(options, world_size);
  if (!mesh.ok()) return mesh.status();
  TANDEM_RETURN_IF_ERROR(CheckCanBeShared(options));
  const absl::Status strategy =
      StrategyFor(*mesh, static_cast<int>(options.devices.devices_per_rank),
                  options.strategy)
          .status();
  TANDEM_RETURN_IF_ERROR(
      Annotate(strategy, absl::StrCat("--strategy=", options.strategy)));
  TANDEM_RETURN_IF_ERROR(CheckReplicas(options, mesh->replicas()));
  TANDEM_ASSIGN_OR_RETURN(const int64_t batch_size,
                          ReplicaBatchSize(options, mesh->replicas()));
  TANDEM_RETURN_IF_ERROR(CheckAccumulation(options, batch_size));
  TANDEM_RETURN_IF_ERROR(
      RequestedThreads(options.intra_op_threads, kMostIntraOpThreads).status());
  return CheckLayout(options.pipeline, MakePipelineContext(options),
                     world_size - ParameterServerCount(options));
}

namespace {

// Appends those whose names are not there yet.
void Append(const SettingValues& more, SettingValues* values) {
  const auto known = *values;
  for (const auto& each : more) {
    const bool there = absl::c_any_of(
        known, [&](const auto& one) { return one.first == each.first; });
    if (!there) values->push_back(each);
  }
}

// What an evaluation has no use for.
void RemoveTraining(SettingValues* values) {
  values->erase(std::remove_if(values->begin(), values->end(),
                               [](const auto& each) {
                                 return each.first == "optimizer" ||
                                        each.first == "learning_rate" ||
                                        each.first == "optimizer_groups" ||
                                        each.first == "optimizer_state" ||
                                        each.first == "training_samples";
                               }),
                values->end());
}

}  // namespace

JobDescription DescribeJob(const Job& job) {
  // The word that was given, which gives the same job again.
  const bool asked =
      !job.options.strategy.empty() && job.options.strategy != "auto";
  const bool from_folder =
      job.transformer.has_value() && job.transformer->from_folder;
  SettingValues resolved = {
      {"model",
       from_folder ? ModelType(job.transformer->model) : job.options.model},
      {"dataset", job.options.dataset},
      {"training_samples", job.data.train->size()},
      {"test_samples", job.data.test->size()},
      {"batch_size", ResolvedBatchSize(job.options)},
      {"batch_per_replica", job.batch_size_per_replica},
      {"optimizer", job.options.optimizer},
      {"learning_rate", ResolvedLearningRate(job.options)},
      {"strategy", asked ? job.options.strategy : job.strategy->name()},
      {"mesh", job.mesh.ToString()},
      {"launcher", job.launch.launcher},
      {"intra_op_threads", int64_t{job.intra_op_threads}},
  };
  const std::string sharding = job.strategy->DescribeSharding();
  if (job.mesh.replicas() > 1 && !sharding.empty()) {
    resolved.push_back({"optimizer_state", sharding});
  }
  if (job.microbatches > 0) {
    resolved.push_back({"microbatches", job.microbatches});
  }
  if (!job.optimizer_groups.empty()) {
    resolved.push_back({"optimizer_groups", job.optimizer_groups});
  }
  if (!job.exempt_from_decay.empty()) {
    resolved.push_back({"exempt_from_decay", job.exempt_from_decay});
  }
  const SettingValues given = Describe(job.options);
  JobDescription description = {resolved, resolved};
  if (job.options.eval_only) RemoveTraining(&description.shown);
  description.all.push_back({"flops_per_sample", job.flops.per_sample()});
  if (job.microbatches > 0) {
    description.all.push_back({"microbatches_tried", job.microbatches_tried});
  }
  Append(given, &description.all);
  Append(job.options.show_settings ? given
                                   : Differing(given, Describe(TrainOptions())),
         &description.shown);
  return description;
}

absl::StatusOr<std::string> StrategyFor(const Mesh& mesh, int devices_per_rank,
                                        absl::string_view requested) {
  if (devices_per_rank < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a rank needs at least one device, but was given ", devices_per_rank));
  }
  const std::string fitting = DefaultStrategy(mesh, devices_per_rank);
  if (requested.empty() || requested == "auto") return fitting;
  for (const Needs& strategy : kStrategies) {
    if (requested != strategy.name) continue;
    if (Fits(strategy, mesh, devices_per_rank)) return std::string(requested);
    return absl::InvalidArgumentError(absl::StrCat(
        "the strategy ", requested, " runs ", strategy.text, ", but the mesh (",
        mesh.ToString(), ", devices per rank ", devices_per_rank, ") has ",
        mesh.replicas(), " replica(s) of ", mesh.ranks_of_replica(),
        " rank(s) with ", devices_per_rank, " device(s): use ", fitting,
        ", or leave the choice to auto and change the mesh"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown strategy '", requested, "': choose one of ",
                   NamesNear(requested, StrategyNames())));
}

}  // namespace tandem
