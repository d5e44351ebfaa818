#include "tests/parallel/parameter_server/served_lab.h"

#include <memory>
#include <vector>

#include "core/comm/communicator.h"
#include "core/model/layer_list.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/example_job.h"

namespace tandem {
namespace {

constexpr int64_t kPerWorker = 4;
constexpr int kMostWorkers = 7;

LabLayout OneReplica() {
  LabLayout one = {"one", "sequential", 1, 1, 1};
  one.microbatches = 1;
  return one;
}

LossFunction OrCrossEntropy(const LossFunction& loss) {
  return loss ? loss : LossFunction(CrossEntropy);
}

LabJob JobOf(int steps) {
  LabJob job;
  job.steps = steps;
  job.end = [](const LabRank& rank) { return rank.strategy->Synchronise(); };
  return job;
}

}  // namespace

LayerSpecs ServedSpecs(int seed) {
  LayerList layers = PlainModel(static_cast<uint64_t>(seed));
  layers.insert(layers.begin() + 1, BatchNormLayer("bn", kHidden));
  return SpecsFromLayers(layers);
}

Batch BatchOfWorker(int step, int worker) {
  const Batch whole = GlobalBatch(step, kPerWorker * kMostWorkers);
  return SplitBatch(whole, std::vector<int64_t>(kMostWorkers, kPerWorker))
      .value()[static_cast<size_t>(worker)];
}

LabLayout ServedLayoutOf(int workers, const ParameterServerOptions& options,
                         const std::string& backend) {
  LabLayout layout = {"served", "sequential", workers + options.servers, 1, 1};
  layout.backend = backend;
  return layout;
}

LabJob ServedJob(const ParameterServerOptions& options, int steps,
                 const LossFunction& loss) {
  LabJob job = JobOf(steps);
  job.make = [options, loss = OrCrossEntropy(loss)](Communicator* world) {
    const auto make_replica =
        [&](int worker) -> absl::StatusOr<std::unique_ptr<Strategy>> {
      const LayerSpecs specs = ServedSpecs(3 + worker);
      return MeshStrategy::Create(
          specs, loss,
          LabOptions(OneReplica(), static_cast<int64_t>(specs.size())),
          nullptr);
    };
    return MakeParameterServer(make_replica, options, *world);
  };
  job.share = [servers = options.servers](int step, int rank) {
    return rank < servers ? Batch() : BatchOfWorker(step, rank - servers);
  };
  return job;
}

LabLayout ReplicatedLayoutOf(int workers) {
  LabLayout layout = {"replicated", "sequential", workers, 1, 1};
  layout.microbatches = workers;
  return layout;
}

LabJob ReplicatedJob(const UpdateOptions& options, int steps,
                     const LossFunction& loss) {
  LabJob job = JobOf(steps);
  job.loss = OrCrossEntropy(loss);
  job.specs = [] { return ServedSpecs(3); };
  job.change = [options](MeshStrategyOptions& mesh) {
    static_cast<UpdateOptions&>(mesh) = options;
  };
  job.share = BatchOfWorker;
  return job;
}

}  // namespace tandem
