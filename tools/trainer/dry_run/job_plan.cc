#include "tools/trainer/dry_run/job_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/row_parts.h"
#include "core/model/layer_list.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/save_folder.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/starting_point.h"

namespace tandem {
namespace {

// The layers, each made without values.
LayerSpecs WithoutValues(LayerSpecs specs) {
  return MadeThrough(
      [](auto make) {
        const MetaScope no_values;
        return make();
      },
      std::move(specs));
}

// Layers that cannot be made without values are made with them.
absl::StatusOr<std::vector<TensorShape>> ShapesOf(const LayerSpecs& specs,
                                                  LayerSpecs* without_values) {
  absl::StatusOr<std::vector<TensorShape>> shapes = ModelShapes(specs);
  if (shapes.ok()) {
    *without_values = WithoutValues(specs);
    return shapes;
  }
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers,
                          MakeModelLayers(specs, /*seed=*/0));
  *without_values = SpecsFromLayers(layers);
  return ModelShapes(*without_values);
}

absl::StatusOr<std::vector<TensorShape>> ShapesOfRank(
    const TrainOptions& options, const LayerSpecs& specs) {
  const PlannedLayersScope shared(options.pipeline);
  LayerSpecs without_values;
  return ShapesOf(specs, &without_values);
}

absl::Status FindLayers(const TrainOptions& options, JobPlan* plan) {
  Job& job = plan->job;
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs,
                          JobLayers(options, job.transformer, *job.data.train));
  TANDEM_ASSIGN_OR_RETURN(
      job.adapters, JobAdapters(options, job.transformer, *job.data.train));
  TANDEM_ASSIGN_OR_RETURN(
      job.row_parts, ModelRowParts(options, job.transformer, *job.data.train));
  for (const LayerSpec& each : specs) plan->layers.push_back(each.name);
  JobModel model = {{}, JobLoss(options, job.transformer), {}};
  TANDEM_ASSIGN_OR_RETURN(plan->shapes, ShapesOf(specs, &model.layers));
  TANDEM_ASSIGN_OR_RETURN(plan->rank_shapes, ShapesOfRank(options, specs));
  TANDEM_ASSIGN_OR_RETURN(
      plan->groups, MakeOptimizerGroups(options, model.layers, job.row_parts));
  model.optimizers = plan->groups.update;
  TANDEM_ASSIGN_OR_RETURN(
      plan->partition,
      PlanPartition(options, model, job.data, job.mesh.world_size()));
  return absl::OkStatus();
}

// What FindStart would find.
absl::Status FindStart(JobPlan* plan) {
  Job& job = plan->job;
  const TrainOptions& options = job.options;
  JobStart start;
  if (!options.resume.empty()) {
    TANDEM_ASSIGN_OR_RETURN(Resumed resumed,
                            PlanResume(job, WholeModel(*plan)));
    start.resumed = resumed.position;
    job.id = resumed.job;
    plan->start_lines = std::move(resumed.lines);
  }
  if (!start.resumed.has_value() && !options.init_from.empty()) {
    TANDEM_ASSIGN_OR_RETURN(std::string line,
                            PlanInitialWeights(job, WholeModel(*plan)));
    plan->start_lines.push_back(std::move(line));
  }
  start.stand.position = start.resumed.value_or(TrainPosition());
  plan->start = start.stand.position;
  if (options.eval_only || options.save_dir.empty()) return absl::OkStatus();
  std::string said;
  TANDEM_RETURN_IF_ERROR(CheckLaterCheckpoints(job, start, &said));
  if (!said.empty()) plan->start_lines.push_back(said);
  return absl::OkStatus();
}

// Names of what is trained, each weight once.
std::vector<std::string> ParameterNames(const JobPlan& plan) {
  std::vector<std::string> names;
  for (const TensorShape& each : plan.shapes) {
    if (!each.is_buffer && each.tied_to.empty()) names.push_back(each.name);
  }
  return names;
}

}  // namespace

absl::StatusOr<JobPlan> PlanJob(const TrainOptions& options,
                                const Launch& first) {
  JobPlan plan;
  Job& job = plan.job;
  job.options = options;
  job.launch = first;
  TANDEM_ASSIGN_OR_RETURN(job.mesh, JobMesh(options, first.world_size));
  TANDEM_ASSIGN_OR_RETURN(
      plan.strategy,
      StrategyFor(job.mesh, static_cast<int>(options.devices.devices_per_rank),
                  options.strategy));
  TANDEM_ASSIGN_OR_RETURN(job.batch_size_per_replica,
                          ReplicaBatchSize(options, job.mesh.replicas()));
  if (!options.eval_only) {
    TANDEM_RETURN_IF_ERROR(TrySaveFolder(options.save_dir));
  }
  TANDEM_ASSIGN_OR_RETURN(job.transformer, JobTransformer(options));
  TANDEM_ASSIGN_OR_RETURN(job.data, OpenOwnData(options, job.transformer));
  TANDEM_RETURN_IF_ERROR(CheckTestSet(options, job.data));
  TANDEM_RETURN_IF_ERROR(
      FirstSamples(*job.data.train, job.batch_size_per_replica).status());
  if (!options.eval_only) {
    TANDEM_RETURN_IF_ERROR(CheckKeptTokenizer(options));
  }
  TANDEM_RETURN_IF_ERROR(FindLayers(options, &plan));
  TANDEM_ASSIGN_OR_RETURN(
      plan.exempt_from_decay,
      DescribeExempt(options, plan.groups.update.optimizer_group,
                     ParameterNames(plan), job.row_parts));
  if (!options.eval_only) {
    TANDEM_ASSIGN_OR_RETURN(plan.training, PlanTraining(job));
    job.planned_steps = plan.training.steps;
  }
  TANDEM_RETURN_IF_ERROR(FindStart(&plan));
  return plan;
}

std::vector<TensorInfo> WholeModel(const JobPlan& plan) {
  std::vector<TensorInfo> infos;
  for (const TensorShape& each : plan.shapes) {
    infos.push_back({each.name, each.dtype, each.sizes});
  }
  return WithoutParts(infos, plan.job.row_parts);
}

}  // namespace tandem
