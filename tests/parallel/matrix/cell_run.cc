#include "tests/parallel/matrix/cell_run.h"

#include <ATen/Parallel.h>
#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/context/compute_context.h"
#include "core/model/layer_list.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/parameter_server.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/matrix/cell_problem.h"
#include "tests/parallel/matrix/matrix_problem.h"

namespace tandem {
namespace {

at::Tensor Copy(const at::Tensor& tensor) {
  return tensor.detach().cpu().contiguous().clone();
}

NamedTensors CopiesOf(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) {
    copies.emplace_back(prefix + name, Copy(tensor));
  }
  return copies;
}

NamedTensors GradientsOf(const NamedTensors& parameters) {
  NamedTensors gradients;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.grad().defined()) gradients.emplace_back(name, tensor.grad());
  }
  return CopiesOf(gradients, "gradient of ");
}

void Append(const NamedTensors& more, NamedTensors* tensors) {
  tensors->insert(tensors->end(), more.begin(), more.end());
}

// `batch` without what the rank has no use for.
Batch Taken(Batch batch, const Strategy& strategy) {
  if (!strategy.takes_inputs()) batch.inputs = at::Tensor();
  if (!strategy.takes_targets()) batch.targets = at::Tensor();
  return batch;
}

// A rank's part of a batch: what its replica computes.
Batch PartOf(const Batch& batch, const MatrixCell& cell, int rank,
             const MutatedRank& mutated) {
  if (!cell.reproducible) return batch;  // of the one replica
  const int64_t most = cell.microbatches / cell.replicas * MicrobatchSize(cell);
  const int64_t first = rank / cell.ranks_of_replica() * most;
  const int64_t size = std::min(most, batch.size - first);
  if (size <= 0) return Batch();
  return mutated.Changed({batch.inputs.narrow(0, first, size),
                          batch.targets.narrow(0, first, size), size});
}

std::vector<StageReport> ReportsOf(const MeshStrategy& hybrid) {
  std::vector<StageReport> reports;
  const auto& stages = hybrid.executor().stages();
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] == nullptr) continue;
    StageReport report;
    report.number = static_cast<int>(i);
    report.layers = static_cast<int>(stages[i]->layers().size());
    report.device = stages[i]->device();
    for (const auto& [name, tensor] : NamedParameters(stages[i]->layers())) {
      report.parameters.push_back(name);
      report.storages.push_back(tensor.storage().data());
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

absl::Status NoteThreads(MeshStrategy& hybrid,
                         std::vector<StageReport>* reports) {
  absl::Mutex mutex;
  std::map<int, std::thread::id> threads;
  TANDEM_RETURN_IF_ERROR(hybrid.OnDevices([&](int device) {
    absl::MutexLock lock(&mutex);
    threads[device] = std::this_thread::get_id();
    return absl::OkStatus();
  }));
  for (StageReport& each : *reports) {
    each.thread =
        threads.at(DeviceOfStage(hybrid.executor().schedule(), each.number));
  }
  return absl::OkStatus();
}

void NoteMoves(const NamedTensors& parameters, const NamedTensors& before,
               RankReport* report) {
  for (size_t i = 0; i < before.size(); ++i) {
    if (parameters[i].second.equal(before[i].second)) {
      report->unmoved.push_back(before[i].first);
    }
  }
  report->has_moved = report->unmoved.size() < before.size();
}

// What this rank has.
void NoteState(const Strategy& strategy, RankReport* report) {
  Append(CopiesOf(strategy.Parameters(), ""), &report->state);
  Append(CopiesOf(strategy.Buffers(), ""), &report->state);
  Append(CopiesOf(strategy.OptimizerState(), "optimizer "), &report->state);
}

// What all ranks have together.
absl::Status NoteWholeState(const CellProblem& problem, int rank,
                            MeshStrategy& strategy, RankReport* report) {
  Append(GradientsOf(strategy.Parameters()), &report->state);
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                          strategy.Forward(Taken(problem.test, strategy)));
  if (outputs.defined()) report->state.emplace_back("outputs", Copy(outputs));
  TANDEM_ASSIGN_OR_RETURN(const WholeState whole, strategy.GatherState());
  if (rank != 0) return absl::OkStatus();
  Append(CopiesOf(whole.parameters, ""), &report->state);
  Append(CopiesOf(whole.buffers, ""), &report->state);
  return absl::OkStatus();
}

// What a rank trains, and the replica in it: itself, or a worker's.
struct Trained {
  std::unique_ptr<Strategy> strategy;
  MeshStrategy* replica = nullptr;  // a server has none
};

absl::StatusOr<Trained> MakeTrained(const MatrixCell& cell,
                                    const CellProblem& problem, int rank,
                                    Communicator* world) {
  TANDEM_ASSIGN_OR_RETURN(const MeshStrategyOptions options,
                          RankOptions(cell, problem, rank));
  Trained trained;
  const auto make_replica = [&](Communicator* replicas)
      -> absl::StatusOr<std::unique_ptr<MeshStrategy>> {
    TANDEM_ASSIGN_OR_RETURN(const LayerSpecs model,
                            RankModel(cell, problem, rank));
    TANDEM_ASSIGN_OR_RETURN(
        auto replica,
        MeshStrategy::Create(model, CrossEntropy, options, replicas));
    trained.replica = replica.get();
    return replica;
  };
  if (!cell.is_served()) {
    TANDEM_ASSIGN_OR_RETURN(trained.strategy, make_replica(world));
    return trained;
  }
  ParameterServerOptions served;
  static_cast<UpdateOptions&>(served) = options;
  TANDEM_ASSIGN_OR_RETURN(
      trained.strategy,
      MakeParameterServer([&](int) { return make_replica(nullptr); }, served,
                          *world));
  return trained;
}

// `rank` of those that train.
absl::Status RunRank(const MatrixCell& cell, const CellProblem& problem,
                     CellMutation mutation, int rank, Communicator* world,
                     RankReport* report) {
  TANDEM_ASSIGN_OR_RETURN(const Trained trained,
                          MakeTrained(cell, problem, rank, world));
  Strategy& strategy = *trained.strategy;
  MeshStrategy& replica = *trained.replica;
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<MutatedRank> mutated,
                          MutatedRank::Create(mutation, cell, replica, world));
  const NamedTensors before = CopiesOf(replica.Parameters(), "");
  report->strategy = strategy.name();
  for (const Batch& batch : problem.batches) {
    const Batch part = Taken(PartOf(batch, cell, rank, *mutated), replica);
    if (report->samples.empty() && part.inputs.defined()) {
      report->samples = WeightsSha256({{"inputs", part.inputs}});
    }
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            strategy.TrainStep(part, problem.learning_rate));
    report->losses.push_back(score.loss_sum);
    // Ranks that have done a step together are all there.
    if (report->stages.empty()) report->stages = ReportsOf(replica);
  }
  TANDEM_RETURN_IF_ERROR(NoteThreads(replica, &report->stages));
  NoteMoves(CopiesOf(replica.Parameters(), ""), before, report);
  if (cell.reproducible) {
    NoteState(strategy, report);
  } else {
    TANDEM_RETURN_IF_ERROR(NoteWholeState(problem, rank, replica, report));
  }
  // No rank frees what another one's memory is compared with.
  return world == nullptr ? absl::OkStatus() : world->Barrier();
}

// The server's rank: gives the optimizer's state.
absl::Status RunServer(const MatrixCell& cell, const CellProblem& problem,
                       Communicator& world, NamedTensors* state) {
  TANDEM_ASSIGN_OR_RETURN(const Trained trained,
                          MakeTrained(cell, problem, 0, &world));
  for (size_t i = 0; i < problem.batches.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(trained.strategy->TrainStep(Batch(), 0).status());
  }
  TANDEM_ASSIGN_OR_RETURN(const WholeState whole,
                          trained.strategy->GatherState());
  *state = CopiesOf(whole.optimizer, "optimizer ");
  return world.Barrier();
}

// Servers are spoken to through the host's memory.
std::string BackendOf(const MatrixCell& cell) {
  if (cell.place == "gloo") return "gloo";
  if (!cell.reproducible) return TestBackend();
  return cell.device == "sim" && !cell.is_served()
             ? TestBackend()
             : CommunicatorOptions().backend;
}

// Before the first backward of the process.
void PrepareProcess() {
  MatrixDevices("sim", 0, 1);
  at::set_num_threads(1);  // as --reproducible has it
}

// Forward and backward of all microbatches, each weighed by its samples.
absl::StatusOr<Score> AddGradients(const MatrixCell& cell,
                                   const LayerList& layers, const Batch& batch,
                                   int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(batch, EvenSizes(batch.size, cell.microbatches)));
  Score score;
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const SampleScope samples({CellSeed(cell), step, first});
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
  return score;
}

// In as many microbatches.
absl::StatusOr<at::Tensor> Outputs(const MatrixCell& cell,
                                   const LayerList& layers,
                                   const Batch& batch) {
  SetTraining(layers, false);
  const at::NoGradGuard no_grad;
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(batch, EvenSizes(batch.size, cell.microbatches)));
  std::vector<at::Tensor> outputs;
  for (const Batch& part : parts) {
    outputs.push_back(Forward(layers, part.inputs));
  }
  return at::cat(outputs);
}

}  // namespace

absl::StatusOr<CellRun> RunCell(const MatrixCell& cell, CellMutation mutation) {
  PrepareProcess();
  const CellProblem problem = MakeProblem(cell);
  const ArmedMutation armed(mutation);
  CellRun run(static_cast<size_t>(cell.ranks()));
  const int servers = cell.servers();
  if (cell.ranks() + servers == 1) {
    TANDEM_RETURN_IF_ERROR(
        RunRank(cell, problem, mutation, 0, nullptr, &run.front()));
    return run;
  }
  CommunicatorOptions options;
  options.timeout = std::chrono::minutes(2);
  options.backend = BackendOf(cell);
  NamedTensors served;
  TANDEM_RETURN_IF_ERROR(RunThreadRanks(
      cell.ranks() + servers,
      [&](Communicator& world) {
        const int rank = world.rank() - servers;
        if (rank < 0) return RunServer(cell, problem, world, &served);
        return RunRank(cell, problem, mutation, rank, &world,
                       &run[static_cast<size_t>(rank)]);
      },
      options));
  for (RankReport& each : run) {
    Append(served, &each.state);
  }
  return run;
}

absl::StatusOr<CellRun> RunInOnePiece(const MatrixCell& cell) {
  PrepareProcess();
  const CellProblem problem = MakeProblem(cell);
  const LayerList layers = MakeLayers(problem.specs, CellSeed(cell));
  const NamedTensors parameters = NamedParameters(layers);
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
                          MakeOptimizer(MomentumSgd(), buffers));
  RankReport report;
  for (size_t step = 0; step < problem.batches.size(); ++step) {
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            AddGradients(cell, layers, problem.batches[step],
                                         static_cast<int64_t>(step)));
    optimizer->Step(problem.learning_rate);
    report.losses.push_back(score.loss_sum);
  }
  Append(CopiesOf(parameters, ""), &report.state);
  Append(GradientsOf(parameters), &report.state);
  Append(CopiesOf(NamedBuffers(layers), ""), &report.state);
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                          Outputs(cell, layers, problem.test));
  report.state.emplace_back("outputs", Copy(outputs));
  return CellRun{report};
}

}  // namespace tandem
