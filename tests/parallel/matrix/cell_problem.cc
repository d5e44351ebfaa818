#include "tests/parallel/matrix/cell_problem.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>

#include <chrono>

#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "models/mlp.h"
#include "models/registry.h"
#include "models/resnet.h"
#include "models/transformer/gpt.h"
#include "parallel/balance/cut.h"
#include "parallel/data_parallel/replicated_layers.h"
#include "tests/parallel/matrix/matrix_problem.h"

namespace tandem {
namespace {

constexpr int kStepsOfEpoch = 5;

bool IsGpt(const MatrixCell& cell) { return cell.model == "gpt_tiny_tied"; }
bool IsResnet(const MatrixCell& cell) {
  return cell.model == "resnet18" || cell.model == "resnet18_deferred";
}

// A ResNet in float32 strays, within a few steps, from the rounding of the
// first (a ReLU whose input is about 0 opens on one side alone): where sums
// have another order one step is compared.
int StepsOf(const MatrixCell& cell) {
  if (cell.reproducible) return 10;
  return IsResnet(cell) && cell.microbatches > 1 ? 1 : 2;
}

LayerSpecs RegisteredModel(const MatrixCell& cell, const BatchShape& shape) {
  ModelOptions model;
  model.name = IsResnet(cell) ? "resnet18" : cell.model;
  model.classes = shape.classes;
  model.tokens = shape.tokens;
  model.input_shape = shape.inputs;
  return *MakeModel(model);
}

LayerSpecs SmallModel(const MatrixCell& cell) {
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

BatchShape ShapeOf(const MatrixCell& cell) {
  if (!cell.reproducible) {
    if (IsResnet(cell)) return {{3, 33, 33}, 5, false};
    if (IsGpt(cell)) return {{6}, 50, true};
    return {{3, 8, 8}, 5, false};
  }
  if (IsResnet(cell)) return {{3, 9, 9}, 5, false};
  if (IsGpt(cell)) return {{5}, 33, true};
  return {{7}, 5, false};
}

OptimizerOptions OptimizerOf(const MatrixCell& cell) {
  if (!cell.reproducible) return MomentumSgd();
  if (IsGpt(cell)) return AdamWOptions();
  SgdOptions sgd = MomentumSgd();
  if (IsResnet(cell)) sgd.weight_decay = 1e-3;
  return sgd;
}

// Each part has as many layers with parameters as can be.
absl::StatusOr<Cuts> CutsOf(const LayerSpecs& specs, int stages,
                            uint64_t seed) {
  std::vector<int64_t> trained;
  for (size_t i = 0; i < specs.size(); ++i) {
    const LayerList layer = MakeLayers({specs[i]}, seed);
    if (NamedParameters(layer).empty()) continue;
    trained.push_back(static_cast<int64_t>(i));
  }
  TANDEM_ASSIGN_OR_RETURN(
      Cuts cuts, UniformCuts(static_cast<int64_t>(trained.size()), stages));
  for (int64_t& cut : cuts) cut = trained[static_cast<size_t>(cut)];
  return cuts;
}

std::vector<c10::Device> RankDevices(const MatrixCell& cell, int rank) {
  const int devices = cell.devices_per_rank();
  return MatrixDevices(cell.device, rank * devices, devices);
}

// A short batch has four microbatches and one that lacks a sample; those of
// cells that are not reproducible are uneven for any number of microbatches but
// 1 and those that divide them.
int64_t SamplesOf(const MatrixCell& cell, int step) {
  if (!cell.reproducible) return IsResnet(cell) ? 9 : 13;
  const bool is_last = step % kStepsOfEpoch == kStepsOfEpoch - 1;
  const bool is_short = is_last && cell.ends == "short";
  return is_short ? 5 * MicrobatchSize(cell) - 1
                  : cell.microbatches * MicrobatchSize(cell);
}

}  // namespace

SgdOptions MomentumSgd() {
  SgdOptions sgd;
  sgd.momentum = 0.9;
  return sgd;
}

CellProblem MakeProblem(const MatrixCell& cell) {
  const BatchShape shape = ShapeOf(cell);
  const uint64_t seed = CellSeed(cell);
  CellProblem problem;
  for (int i = 0; i < StepsOf(cell); ++i) {
    problem.batches.push_back(RandomBatch(shape, SamplesOf(cell, i), seed, i));
  }
  if (cell.reproducible) {
    problem.specs = SmallModel(cell);
    problem.learning_rate = IsGpt(cell) ? 0.003 : 0.05;
    return problem;
  }
  problem.specs = RegisteredModel(cell, shape);
  problem.learning_rate = 0.01;
  problem.test = RandomBatch(shape, SamplesOf(cell, 0), seed, /*number=*/-1);
  return problem;
}

uint64_t CellSeed(const MatrixCell& cell) { return cell.reproducible ? 11 : 5; }

int64_t MicrobatchSize(const MatrixCell& cell) { return IsGpt(cell) ? 2 : 3; }

absl::StatusOr<LayerSpecs> RankModel(const MatrixCell& cell,
                                     const CellProblem& problem, int rank) {
  if (cell.parts == 1) return problem.specs;
  const auto make = [&] { return MakeLayers(problem.specs, CellSeed(cell)); };
  TANDEM_ASSIGN_OR_RETURN(
      const LayerList layers,
      ReplicateOverDevices(make(), make, RankDevices(cell, rank)));
  return SpecsFromLayers(layers);
}

absl::StatusOr<MeshStrategyOptions> RankOptions(const MatrixCell& cell,
                                                const CellProblem& problem,
                                                int rank) {
  MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.schedule, CellSchedule(cell));
  options.devices = RankDevices(cell, rank);
  // The strategy knows the first device of a divided microbatch.
  if (cell.parts > 1) options.devices = {options.devices[0]};
  if (cell.checkpointing == "every_2") {
    options.pipeline.selective.every = 2;
  } else {
    options.pipeline.checkpointing = CheckpointingNamed(cell.checkpointing);
  }
  options.pipeline.timeout = std::chrono::minutes(2);
  options.pipeline.hang_timeout = std::chrono::minutes(5);
  options.seed = CellSeed(cell);
  options.optimizer = OptimizerOf(cell);
  const int stages = options.schedule.stages;
  if (!cell.reproducible) {
    TANDEM_ASSIGN_OR_RETURN(
        options.cuts,
        UniformCuts(static_cast<int64_t>(problem.specs.size()), stages));
    options.pipeline.defers_statistics = cell.model == "resnet18_deferred";
    return options;
  }
  TANDEM_ASSIGN_OR_RETURN(options.cuts,
                          CutsOf(problem.specs, stages, options.seed));
  options.microbatch_size = MicrobatchSize(cell);
  options.uneven_batches = cell.ends == "short";
  if (IsResnet(cell)) options.clip_norm = 0.5;
  if (cell.dtype == "bf16") {
    options.ddp.mixed_precision.param_dtype = at::kBFloat16;
  }
  options.reproducible = true;
  options.gradient_groups = cell.gradient_groups;
  return options;
}

}  // namespace tandem
