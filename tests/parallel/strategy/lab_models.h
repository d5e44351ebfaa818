// Lab models: small models by name, batches for them, and jobs of the strategy
// laboratory that train them.

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_LAB_MODELS_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_LAB_MODELS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/loss/loss.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "parallel/step/mesh_strategy_options.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/strategy.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {

// Models as models/registry.h names them. A sample has 6 features and one of 5
// classes, or, for a GPT, 6 tokens of 20.
LayerSpecs LabSpecs(const std::string& model);
// Drawn from the seed and the batch's number.
Batch LabBatch(const std::string& model, int64_t size, uint64_t seed,
               int number);

// Submits `count` steps, each on batch number `first`, first + 1, ... of 16
// samples in pinned memory, as a loader gives them for devices.
absl::Status SubmitLabSteps(Strategy& strategy, const std::string& model,
                            int first, int count);

using LabChange = std::function<void(MeshStrategyOptions& options)>;

// ModelJob's: of models and batches, and of learning.
constexpr uint64_t kLabSeed = 5;
constexpr double kLabRate = 0.05;

// Trains with cross-entropy on batches of `size`. `change` may be null.
LabJob ModelJob(const std::string& model, int64_t size, int steps,
                const LabChange& change = nullptr);

// Muon for the matrices of the model's hidden layers, AdamW for the rest.
void MuonAndAdamW(const std::string& model, MeshStrategyOptions& options);

// A strategy of one process that trains with cross-entropy.
absl::StatusOr<std::unique_ptr<MeshStrategy>> OnOneRank(
    const LayerSpecs& specs, const MeshStrategyOptions& options);

// A step of plain SGD, by hand, after which there are no gradients.
void Descend(const LayerList& layers, double rate);

// A change that is refused, and a part of what is said of it.
struct LabRefusal {
  LabChange change;
  std::string says;
};

// Expects of each change that `train` refuses it in its words.
void ExpectRefusals(
    const std::function<absl::Status(const LabChange& change)>& train,
    const std::vector<LabRefusal>& refusals);

// A batch that does not fit, and a part of what is said of it.
struct LabBatchRefusal {
  Batch batch;
  std::string says;
};

// Expects that each batch is refused in its words, in training and in
// evaluation, by a pipeline of two stages, and by one replica that takes it in
// so many parts.
void ExpectBatchRefusals(const LayerSpecs& specs, const LossFunction& loss,
                         const std::vector<int64_t>& parts,
                         const std::vector<LabBatchRefusal>& refusals);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_STRATEGY_LAB_MODELS_H_
