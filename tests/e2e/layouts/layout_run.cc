#include "tests/e2e/layouts/layout_run.h"

#include <ATen/Parallel.h>
#include <ATen/Tensor.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/model/layer_list.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/parameter_server.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/e2e/layouts/layout_problem.h"
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

// A rank's part of a batch: what its replica computes, as far as it takes it.
Batch PartOf(const Batch& batch, const LayoutCell& cell, int rank,
             const MeshStrategy& hybrid, const MutatedRank& mutated) {
  const int64_t most =
      cell.microbatches / cell.replicas * MicrobatchSizeOf(cell);
  const int64_t first = rank / cell.ranks_of_replica() * most;
  const int64_t size = std::min(most, batch.size - first);
  if (size <= 0) return Batch();
  Batch part = mutated.Changed({batch.inputs.narrow(0, first, size),
                                batch.targets.narrow(0, first, size), size});
  if (!hybrid.takes_inputs()) part.inputs = at::Tensor();
  if (!hybrid.takes_targets()) part.targets = at::Tensor();
  return part;
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

void NoteState(const Strategy& strategy, const NamedTensors& before,
               RankReport* report) {
  report->state = CopiesOf(strategy.Parameters(), "");
  for (size_t i = 0; i < before.size(); ++i) {
    if (!report->state[i].second.equal(before[i].second)) continue;
    report->unmoved.push_back(before[i].first);
  }
  for (auto& each : CopiesOf(strategy.Buffers(), "")) {
    report->state.push_back(std::move(each));
  }
  for (auto& each : CopiesOf(strategy.OptimizerState(), "optimizer ")) {
    report->state.push_back(std::move(each));
  }
}

// What a rank trains, and the replica in it: itself, or a worker's.
struct Trained {
  std::unique_ptr<Strategy> strategy;
  MeshStrategy* replica = nullptr;  // a server has none
};

absl::StatusOr<Trained> MakeTrained(const LayoutCell& cell,
                                    const LayoutProblem& problem, int rank,
                                    Communicator* world) {
  TANDEM_ASSIGN_OR_RETURN(const MeshStrategyOptions options,
                          OptionsOf(cell, problem, rank));
  Trained trained;
  const auto make_replica = [&](Communicator* replicas)
      -> absl::StatusOr<std::unique_ptr<MeshStrategy>> {
    TANDEM_ASSIGN_OR_RETURN(const LayerSpecs model,
                            ModelOf(cell, problem, rank));
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
absl::Status RunRank(const LayoutCell& cell, const LayoutProblem& problem,
                     LayoutMutation mutation, int rank, Communicator* world,
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
    const Batch part = PartOf(batch, cell, rank, replica, *mutated);
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
  NoteState(strategy, before, report);
  // No rank frees what another one's memory is compared with.
  return world == nullptr ? absl::OkStatus() : world->Barrier();
}

// The server's rank: gives the optimizer's state.
absl::Status RunServer(const LayoutCell& cell, const LayoutProblem& problem,
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

}  // namespace

absl::StatusOr<LayoutRun> RunLayout(const LayoutCell& cell,
                                    LayoutMutation mutation) {
  MatrixDevices("sim", 0, 1);  // before the first backward of the process
  at::set_num_threads(1);      // as --reproducible has it
  const LayoutProblem problem = ProblemOf(cell);
  const ArmedMutation armed(mutation);
  LayoutRun run(static_cast<size_t>(cell.ranks()));
  const int servers = cell.servers();
  if (cell.ranks() + servers == 1) {
    TANDEM_RETURN_IF_ERROR(
        RunRank(cell, problem, mutation, 0, nullptr, &run.front()));
    return run;
  }
  CommunicatorOptions options;
  options.timeout = std::chrono::minutes(2);
  // Servers are spoken to through the host's memory.
  if (cell.device == "sim" && servers == 0) options.backend = TestBackend();
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
    each.state.insert(each.state.end(), served.begin(), served.end());
  }
  return run;
}

}  // namespace tandem
