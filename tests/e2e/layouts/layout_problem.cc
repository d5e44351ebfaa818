#include "tests/e2e/layouts/layout_problem.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>

#include <chrono>

#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/transformer/gpt.h"
#include "parallel/balance/cut.h"
#include "parallel/data_parallel/replicated_layers.h"
#include "tests/parallel/matrix/matrix_problem.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 11;
constexpr int kSteps = 10;
constexpr int kStepsOfEpoch = 5;

bool IsGpt(const LayoutCell& cell) { return cell.model == "gpt_tiny_tied"; }
bool IsResnet(const LayoutCell& cell) { return cell.model == "resnet18"; }

LayerSpecs SpecsOf(const LayoutCell& cell) {
  if (IsResnet(cell)) {
    ResnetOptions resnet;
    resnet.classes = 5;
    resnet.width = 8;
    return Resnet18(resnet);
  }
  if (IsGpt(cell)) {
    GptOptions gpt;
    gpt.layers = 6;
    gpt.width = 22;
    gpt.heads = 2;
    gpt.context = 7;
    gpt.vocabulary = 33;
    gpt.ties_lm_head = true;
    return *Gpt(gpt);
  }
  CHECK_EQ(cell.model, "mlp_dropout");
  MlpDropoutOptions mlp;
  mlp.inputs = 7;
  mlp.classes = 5;
  mlp.blocks = 6;
  mlp.width = 13;
  mlp.dropout = 0.2;
  return MlpDropout(mlp);
}

BatchShape ShapeOf(const LayoutCell& cell) {
  if (IsResnet(cell)) return {{3, 9, 9}, 5, false};
  if (IsGpt(cell)) return {{5}, 33, true};
  return {{7}, 5, false};
}

OptimizerOptions OptimizerOf(const LayoutCell& cell) {
  if (IsGpt(cell)) return AdamWOptions();
  SgdOptions sgd;
  sgd.momentum = 0.9;
  if (IsResnet(cell)) sgd.weight_decay = 1e-3;
  return sgd;
}

// As many layers with parameters each as can be.
absl::StatusOr<Cuts> CutsOf(const LayerSpecs& specs, int stages) {
  std::vector<int64_t> trained;
  for (size_t i = 0; i < specs.size(); ++i) {
    const LayerList layer = MakeLayers({specs[i]}, kSeed);
    if (NamedParameters(layer).empty()) continue;
    trained.push_back(static_cast<int64_t>(i));
  }
  TANDEM_ASSIGN_OR_RETURN(
      Cuts cuts, UniformCuts(static_cast<int64_t>(trained.size()), stages));
  for (int64_t& cut : cuts) cut = trained[static_cast<size_t>(cut)];
  return cuts;
}

std::vector<c10::Device> DevicesOf(const LayoutCell& cell, int rank) {
  const int devices = cell.devices_per_rank();
  return MatrixDevices(cell.device, rank * devices, devices);
}

// A short batch has four microbatches and one that lacks a sample.
int64_t SamplesOf(const LayoutCell& cell, int step) {
  const bool is_last = step % kStepsOfEpoch == kStepsOfEpoch - 1;
  const bool is_short = is_last && cell.ends == "short";
  return is_short ? 5 * MicrobatchSizeOf(cell) - 1
                  : cell.microbatches * MicrobatchSizeOf(cell);
}

}  // namespace

LayoutProblem ProblemOf(const LayoutCell& cell) {
  LayoutProblem problem;
  problem.specs = SpecsOf(cell);
  problem.learning_rate = IsGpt(cell) ? 0.003 : 0.05;
  for (int i = 0; i < kSteps; ++i) {
    problem.batches.push_back(
        RandomBatch(ShapeOf(cell), SamplesOf(cell, i), kSeed, i));
  }
  return problem;
}

int64_t MicrobatchSizeOf(const LayoutCell& cell) { return IsGpt(cell) ? 2 : 3; }

absl::StatusOr<LayerSpecs> ModelOf(const LayoutCell& cell,
                                   const LayoutProblem& problem, int rank) {
  if (cell.parts == 1) return problem.specs;
  const auto make = [&] { return MakeLayers(problem.specs, kSeed); };
  TANDEM_ASSIGN_OR_RETURN(
      const LayerList layers,
      ReplicateOverDevices(make(), make, DevicesOf(cell, rank)));
  return SpecsOf(layers);
}

absl::StatusOr<MeshStrategyOptions> OptionsOf(const LayoutCell& cell,
                                              const LayoutProblem& problem,
                                              int rank) {
  MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.schedule, ScheduleOf(cell));
  TANDEM_ASSIGN_OR_RETURN(options.cuts,
                          CutsOf(problem.specs, options.schedule.stages));
  options.devices = DevicesOf(cell, rank);
  // Of a divided microbatch's devices the strategy knows the first.
  if (cell.parts > 1) options.devices = {options.devices[0]};
  options.microbatch_size = MicrobatchSizeOf(cell);
  if (cell.checkpointing == "every_2") {
    options.pipeline.selective.every = 2;
  } else {
    options.pipeline.checkpointing = CheckpointingNamed(cell.checkpointing);
  }
  options.uneven_batches = cell.ends == "short";
  options.pipeline.timeout = std::chrono::minutes(2);
  options.pipeline.hang_timeout = std::chrono::minutes(5);
  options.seed = kSeed;
  options.optimizer = OptimizerOf(cell);
  if (IsResnet(cell)) options.clip_norm = 0.5;
  if (cell.dtype == "bf16") {
    options.ddp.mixed_precision.param_dtype = at::kBFloat16;
  }
  options.reproducible = true;
  options.gradient_groups = cell.gradient_groups;
  return options;
}

}  // namespace tandem
