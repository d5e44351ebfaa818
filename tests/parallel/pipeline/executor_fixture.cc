#include "tests/parallel/pipeline/executor_fixture.h"

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>

#include <utility>

#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/balance/cut.h"
#include "parallel/pipeline/model.h"

namespace tandem {
namespace {

constexpr int64_t kFeatures = 12;
constexpr int64_t kClasses = 5;

}  // namespace

LayerSpecs ExecutorFixture::Specs() {
  return Mlp({kFeatures, 6, 16, kClasses});
}

std::vector<Batch> ExecutorFixture::BatchesOf(int64_t size, int parts,
                                              int seed) {
  at::manual_seed(seed);
  const at::Tensor inputs = at::randn({size, kFeatures});
  const at::Tensor targets = at::arange(size).remainder(kClasses);
  std::vector<Batch> batches;
  const auto inputs_of = inputs.tensor_split(parts);
  const auto targets_of = targets.tensor_split(parts);
  for (int i = 0; i < parts; ++i) {
    batches.push_back({inputs_of[i], targets_of[i], inputs_of[i].size(0)});
  }
  return batches;
}

absl::StatusOr<std::unique_ptr<PipelineExecutor>> ExecutorFixture::Make(
    const Schedule& schedule, const LayerSpecs& specs,
    const PipelineOptions& options) {
  PipelineModelOptions model;
  model.seed = kSeed;
  model.cuts =
      *UniformCuts(static_cast<int64_t>(specs.size()), schedule.stages);
  model.splits_backward = schedule.name[0] == 'z';
  const PipelineLayout layout = {Devices(schedule.devices()), nullptr};
  auto stages = MakeStages(specs, schedule, layout, model, CrossEntropy);
  if (!stages.ok()) return stages.status();
  return PipelineExecutor::Create(schedule, *std::move(stages), layout,
                                  options);
}

}  // namespace tandem
