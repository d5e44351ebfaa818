#include "tests/parallel/matrix/pipeline_matrix.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <torch/nn/module.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/model/microbatch_scope.h"
#include "core/random/sample_scope.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/registry.h"
#include "parallel/balance/cut.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/gather_on_rank0.h"

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

// What is compared.
struct Outcome {
  std::vector<double> losses;
  at::Tensor outputs;    // of the test batch, after training
  NamedTensors tensors;  // gradients of the last step, weights, buffers

  void Add(const NamedTensors& parameters, const NamedTensors& buffers) {
    for (const auto& [name, tensor] : parameters) {
      tensors.emplace_back(name, tensor.detach().cpu().clone());
      if (!tensor.grad().defined()) continue;
      tensors.emplace_back("gradient of " + name, tensor.grad().cpu().clone());
    }
    for (const auto& [name, tensor] : buffers) {
      tensors.emplace_back(name, tensor.detach().cpu().clone());
    }
  }
};

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
  outcome.Add(NamedParameters(layers), NamedBuffers(layers));
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
  outcome.outputs = at::cat(outputs);
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

absl::StatusOr<MeshStrategyOptions> OptionsOf(const MatrixCell& cell,
                                              const Problem& problem, int ranks,
                                              int rank) {
  MeshStrategyOptions options;
  const int devices = DevicesOf(cell);
  TANDEM_ASSIGN_OR_RETURN(
      options.schedule,
      MakeSchedule(cell.schedule,
                   {devices, cell.stages / devices, cell.microbatches}));
  TANDEM_ASSIGN_OR_RETURN(
      options.cuts,
      UniformCuts(static_cast<int64_t>(problem.specs.size()), cell.stages));
  const int here = devices / ranks;
  options.devices = MatrixDevices(cell.device, rank * here, here);
  options.seed = kSeed;
  options.optimizer = Sgd();
  options.pipeline.checkpointing = CheckpointingNamed(cell.checkpointing);
  options.pipeline.defers_statistics = cell.model == "resnet18_deferred";
  options.pipeline.timeout = std::chrono::seconds(60);
  options.pipeline.hang_timeout = std::chrono::minutes(5);
  return options;
}

// On each rank; rank 0 has the outcome.
absl::Status InStages(const MatrixCell& cell, const Problem& problem,
                      Communicator* pipe, Outcome* outcome) {
  const int ranks = pipe == nullptr ? 1 : pipe->size();
  const int rank = pipe == nullptr ? 0 : pipe->rank();
  TANDEM_ASSIGN_OR_RETURN(const MeshStrategyOptions options,
                          OptionsOf(cell, problem, ranks, rank));
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<MeshStrategy> hybrid,
      MeshStrategy::Create(problem.specs, CrossEntropy, options, pipe));
  const auto part_of = [&](Batch batch) {
    if (rank > 0) batch.inputs = at::Tensor();
    if (!hybrid->executor().has_last_stage()) batch.targets = at::Tensor();
    return batch;
  };
  Outcome mine;
  for (const Batch& batch : problem.batches) {
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            hybrid->TrainStep(part_of(batch), kRate));
    mine.losses.push_back(score.loss());
  }
  mine.Add(hybrid->Parameters(), hybrid->Buffers());
  TANDEM_ASSIGN_OR_RETURN(at::Tensor outputs,
                          hybrid->Forward(part_of(problem.test)));
  if (outputs.defined()) mine.tensors.emplace_back("outputs", outputs.cpu());
  if (pipe != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(mine.tensors, GatherOnRank0(mine.tensors, *pipe));
  }
  if (rank == 0) *outcome = std::move(mine);
  return absl::OkStatus();
}

int RanksOf(const MatrixCell& cell) {
  if (cell.place == "local") return 1;
  return cell.place == "both" ? 2 : DevicesOf(cell);
}

absl::StatusOr<Outcome> InStages(const MatrixCell& cell,
                                 const Problem& problem) {
  Outcome outcome;
  const int ranks = RanksOf(cell);
  if (ranks == 1) {
    TANDEM_RETURN_IF_ERROR(InStages(cell, problem, nullptr, &outcome));
    return outcome;
  }
  CommunicatorOptions options;
  options.backend = cell.place == "gloo" ? "gloo" : "shm";
  options.all_local = true;
  options.timeout = std::chrono::seconds(60);
  TANDEM_RETURN_IF_ERROR(RunThreadRanks(
      ranks,
      [&](Communicator& world) {
        return InStages(cell, problem, &world, &outcome);
      },
      options));
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
  std::map<std::string, at::Tensor> tensors(found.tensors.begin(),
                                            found.tensors.end());
  NamedTensors all = expected.tensors;
  all.emplace_back("outputs", expected.outputs);
  if (tensors.size() != all.size()) {
    return absl::InternalError(
        absl::StrCat(tensors.size(), " tensors, not ", all.size()));
  }
  for (const auto& [name, tensor] : all) {
    const auto its = tensors.find(name);
    if (its == tensors.end()) {
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
    result.moved = result.moved || !tensors.at(name).equal(tensor);
  }
  return result;
}

}  // namespace tandem
