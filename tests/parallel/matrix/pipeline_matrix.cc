#include "tests/parallel/matrix/pipeline_matrix.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <torch/nn/module.h>

#include <chrono>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/model/microbatch_scope.h"
#include "core/random/sample_scope.h"
#include "models/classification_loss.h"
#include "models/registry.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 5;
constexpr double kRate = 0.01;

struct Problem {
  LayerSpecs specs;
  std::vector<Batch> batches;  // one a step
  Batch test;
};

bool IsResnet(const MatrixCell& cell) { return cell.model[0] == 'r'; }
bool IsGpt(const MatrixCell& cell) { return cell.model[0] == 'g'; }

// A ResNet in float32 strays, within a few steps, from the rounding of the
// first (a ReLU whose input is about 0 opens on one side alone): where sums
// have another order one step is compared.
int StepsOf(const MatrixCell& cell) {
  return IsResnet(cell) && cell.microbatches > 1 ? 1 : 2;
}

ModelOptions ModelOf(const MatrixCell& cell) {
  ModelOptions model;
  model.name = IsResnet(cell) ? "resnet18" : cell.model;
  model.classes = IsGpt(cell) ? 50 : 5;
  model.tokens = IsGpt(cell);
  model.input_shape = {3, 8, 8};
  if (IsGpt(cell)) model.input_shape = {6};
  if (IsResnet(cell)) model.input_shape = {3, 33, 33};
  return model;
}

Batch BatchOf(const ModelOptions& model, int64_t size, int number) {
  return RandomBatch({model.input_shape, model.classes, model.tokens}, size,
                     kSeed, number);
}

absl::StatusOr<Problem> MakeProblem(const MatrixCell& cell) {
  const ModelOptions model = ModelOf(cell);
  Problem problem;
  TANDEM_ASSIGN_OR_RETURN(problem.specs, MakeModel(model));
  // Uneven for any number of microbatches but 1 and those that divide it.
  const int64_t size = IsResnet(cell) ? 9 : 13;
  for (int i = 0; i < StepsOf(cell); ++i) {
    problem.batches.push_back(BatchOf(model, size, i));
  }
  problem.test = BatchOf(model, size, /*number=*/-1);
  return problem;
}

// What is compared: tensors are gradients of the last step, weights, buffers,
// and outputs for the test batch, after training.
struct Outcome {
  std::vector<double> losses;
  TensorsByName tensors;
};

NamedTensors GradientsOf(const NamedTensors& parameters) {
  NamedTensors gradients;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.grad().defined()) continue;
    gradients.emplace_back("gradient of " + name, tensor.grad());
  }
  return gradients;
}

SgdOptions Sgd() {
  SgdOptions sgd;
  sgd.momentum = 0.9;
  return sgd;
}

absl::StatusOr<Outcome> InOnePiece(const MatrixCell& cell,
                                   const Problem& problem) {
  const LayerList layers = MakeLayers(problem.specs, kSeed);
  const FlatBuffers buffers = MakeFlatBuffers(NamedParameters(layers));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer,
                          MakeOptimizer(Sgd(), buffers));
  Outcome outcome;
  for (size_t step = 0; step < problem.batches.size(); ++step) {
    const Batch& batch = problem.batches[step];
    const auto sizes = EvenSizes(batch.size, cell.microbatches);
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> parts,
                            SplitBatch(batch, sizes));
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    Score score;
    int64_t first = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const SampleScope samples({kSeed, static_cast<int64_t>(step), first});
      const MicrobatchScope microbatch({static_cast<int>(i),
                                        static_cast<int>(parts.size()), false,
                                        cell.model == "resnet18_deferred"});
      const LossResult result =
          CrossEntropy(Forward(layers, parts[i].inputs), parts[i].targets);
      const double weight =
          static_cast<double>(parts[i].size) / static_cast<double>(batch.size);
      (weight == 1 ? result.loss : result.loss.mul(weight)).backward();
      score += result.score;
      first += parts[i].size;
    }
    optimizer->Step(kRate);
    outcome.losses.push_back(score.loss());
  }
  const NamedTensors parameters = NamedParameters(layers);
  for (const NamedTensors& part :
       {parameters, GradientsOf(parameters), NamedBuffers(layers)}) {
    outcome.tensors.merge(CopiesOf(part));
  }
  SetTraining(layers, false);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> outputs;
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(problem.test,
                 EvenSizes(problem.test.size, cell.microbatches)));
  for (const Batch& part : parts) {
    outputs.push_back(Forward(layers, part.inputs));
  }
  outcome.tensors["outputs"] = at::cat(outputs);
  return outcome;
}

int DevicesOf(const MatrixCell& cell) {
  return cell.schedule == "zb_v" ? cell.stages / 2
         : (cell.schedule == "interleaved_1f1b" ||
            cell.schedule == "looped_bfs") &&
                 cell.stages % 2 == 0
             ? cell.stages / 2
             : cell.stages;
}

LabLayout LayoutOf(const MatrixCell& cell) {
  const int devices = DevicesOf(cell);
  LabLayout layout;
  layout.schedule = cell.schedule;
  layout.pipe = cell.place == "local" ? 1 : cell.place == "both" ? 2 : devices;
  layout.devices = devices / layout.pipe;
  layout.chunks = cell.stages / devices;
  layout.microbatches = cell.microbatches;
  layout.checkpointing = CheckpointingNamed(cell.checkpointing);
  layout.device_pool = MatrixDevices(cell.device, 0, devices);
  if (cell.place == "gloo") layout.backend = "gloo";
  return layout;
}

absl::StatusOr<Outcome> InStages(const MatrixCell& cell,
                                 const Problem& problem) {
  LabJob job;
  job.specs = [&] { return problem.specs; };
  job.loss = CrossEntropy;
  job.change = [&](MeshStrategyOptions& options) {
    options.seed = kSeed;
    options.optimizer = Sgd();
    options.pipeline.defers_statistics = cell.model == "resnet18_deferred";
    options.pipeline.timeout = std::chrono::seconds(60);
    options.pipeline.hang_timeout = std::chrono::minutes(5);
  };
  job.batch = [&](int step) {
    return problem.batches[static_cast<size_t>(step)];
  };
  job.sparing = true;
  job.steps = static_cast<int>(problem.batches.size());
  job.rate = kRate;
  Outcome outcome;
  absl::Mutex mutex;
  job.end = [&](const LabRank& rank) -> absl::Status {
    auto& strategy = static_cast<MeshStrategy&>(*rank.strategy);
    NamedTensors mine = GradientsOf(strategy.Parameters());
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                            strategy.Forward(TakenBy(strategy, problem.test)));
    if (outputs.defined()) mine.emplace_back("outputs", outputs);
    absl::MutexLock lock(&mutex);
    outcome.tensors.merge(CopiesOf(mine));
    return absl::OkStatus();
  };
  TANDEM_ASSIGN_OR_RETURN(LabOutcome trained, TrainInLab(LayoutOf(cell), job));
  for (const Score& score : trained.scores) {
    outcome.losses.push_back(score.loss());
  }
  outcome.tensors.merge(trained.model);
  return outcome;
}

// Of two tensors, relative to the greatest value.
double Difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.equal(b) || a.numel() == 0) return 0;
  const at::Tensor x = a.to(at::kDouble);
  const at::Tensor y = b.to(at::kDouble);
  const double scale = y.abs().max().item<double>();
  return (x - y).abs().max().item<double>() / (scale > 0 ? scale : 1);
}

void Note(double difference, const std::string& where, CellResult* result) {
  if (difference <= result->difference) return;
  result->difference = difference;
  result->where = where;
}

}  // namespace

std::string ToString(const MatrixCell& cell) {
  return absl::StrCat(cell.model, " ", cell.schedule, " stages ", cell.stages,
                      " microbatches ", cell.microbatches, " ", cell.place,
                      " checkpointing ", cell.checkpointing, " ", cell.device);
}

const MatrixValues& MatrixSettings() {
  static const auto* settings =
      new MatrixValues{{"mlp_small", "mlp_dropout", "gpt_tiny_tied",
                        "unet_tiny", "resnet18", "resnet18_deferred"},
                       ScheduleNames(),
                       {"1", "2", "3", "4"},
                       {"1", "2", "3", "4", "5", "6", "7", "8"},
                       {"local", "ranks", "gloo", "both"},
                       {"never", "except_last", "always"},
                       {"cpu", "sim"}};
  return *settings;
}

MatrixCell CellOf(const Combination& combination) {
  const auto value = [&](size_t i) {
    return MatrixSettings()[i][static_cast<size_t>(combination[i])];
  };
  MatrixCell cell;
  cell.model = value(0);
  cell.schedule = value(1);
  cell.stages = combination[2] + 1;
  cell.microbatches = combination[3] + 1;
  cell.place = value(4);
  cell.checkpointing = value(5);
  cell.device = value(6);
  return cell;
}

std::string WhyNot(const MatrixCell& cell) {
  if (cell.schedule == "zb_v" && cell.stages % 2 != 0) {
    return "zb_v has two stages on each device";
  }
  const int devices = DevicesOf(cell);
  if (cell.schedule == "interleaved_1f1b" && cell.microbatches % devices != 0) {
    return "interleaved_1f1b takes a multiple of the devices";
  }
  if (cell.place == "both" && devices != 4) return "2 ranks x 2 are 4 devices";
  const bool over_ranks = cell.place == "ranks" || cell.place == "gloo";
  if (over_ranks && devices == 1) return "one device is on one rank";
  return "";
}

double ToleranceOf(const MatrixCell& cell) {
  if (cell.microbatches == 1) return 0;
  return IsResnet(cell) ? 1e-4 : 2e-5;
}

absl::StatusOr<CellResult> RunCell(const MatrixCell& cell) {
  MatrixDevices("sim", 0, 1);  // before the first backward of the process
  TANDEM_ASSIGN_OR_RETURN(const Problem problem, MakeProblem(cell));
  TANDEM_ASSIGN_OR_RETURN(const Outcome expected, InOnePiece(cell, problem));
  TANDEM_ASSIGN_OR_RETURN(const Outcome found, InStages(cell, problem));
  CellResult result;
  if (found.tensors.size() != expected.tensors.size()) {
    return absl::InternalError(absl::StrCat(
        found.tensors.size(), " tensors, not ", expected.tensors.size()));
  }
  for (const auto& [name, tensor] : expected.tensors) {
    const auto its = found.tensors.find(name);
    if (its == found.tensors.end()) {
      return absl::InternalError(absl::StrCat(name, " is missing"));
    }
    Note(Difference(its->second, tensor), name, &result);
  }
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    const double loss = expected.losses[i];
    Note(std::abs(found.losses[i] - loss) / std::abs(loss),
         absl::StrCat("loss of step ", i), &result);
  }
  const NamedTensors before = NamedParameters(MakeLayers(problem.specs, kSeed));
  for (const auto& [name, tensor] : before) {
    result.moved = result.moved || !found.tensors.at(name).equal(tensor);
  }
  return result;
}

}  // namespace tandem
