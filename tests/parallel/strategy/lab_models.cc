#include "tests/parallel/strategy/lab_models.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "core/base/status_macros.h"
#include "core/model/hidden_matrices.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/registry.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/matrix/matrix_problem.h"

namespace tandem {
namespace {

constexpr int64_t kFeatures = 6;  // or tokens
constexpr int64_t kLabClasses = 5;
constexpr int64_t kVocabulary = 20;

}  // namespace

LayerSpecs LabSpecs(const std::string& model) {
  ModelOptions options;
  options.name = model;
  options.tokens = TakesTokens(model);
  options.classes = options.tokens ? kVocabulary : kLabClasses;
  options.input_shape = {kFeatures};
  return *MakeModel(options);
}

Batch LabBatch(const std::string& model, int64_t size, uint64_t seed,
               int number) {
  const bool tokens = TakesTokens(model);
  const int64_t classes = tokens ? kVocabulary : kLabClasses;
  return RandomBatch({{kFeatures}, classes, tokens}, size, seed, number);
}

absl::Status SubmitLabSteps(Strategy& strategy, const std::string& model,
                            int first, int count) {
  for (int step = first; step < first + count; ++step) {
    Batch batch = LabBatch(model, 16, kLabSeed, step);
    batch.inputs = batch.inputs.pin_memory();
    batch.targets = batch.targets.pin_memory();
    TANDEM_RETURN_IF_ERROR(strategy.SubmitStep(batch, 0.1));
  }
  return absl::OkStatus();
}

LabJob ModelJob(const std::string& model, int64_t size, int steps,
                const LabChange& change) {
  LabJob job;
  job.specs = [model] { return LabSpecs(model); };
  job.loss = CrossEntropy;
  job.change = [change](MeshStrategyOptions& options) {
    options.seed = kLabSeed;
    if (change) change(options);
  };
  job.batch = [model, size](int step) {
    return LabBatch(model, size, kLabSeed, step);
  };
  job.steps = steps;
  job.rate = kLabRate;
  return job;
}

void MuonAndAdamW(const std::string& model, MeshStrategyOptions& options) {
  options.optimizer = MuonOptions();
  options.further_optimizers = {AdamWOptions()};
  options.optimizer_group =
      [matrices = HiddenMatrices(MakeLayers(LabSpecs(model), kLabSeed))](
          const std::string& name) -> int64_t {
    return matrices.count(name) > 0 ? 0 : 1;
  };
}

absl::StatusOr<std::unique_ptr<MeshStrategy>> OnOneRank(
    const LayerSpecs& specs, const MeshStrategyOptions& options) {
  return MeshStrategy::Create(specs, CrossEntropy, options, nullptr);
}

void Descend(const LayerList& layers, double rate) {
  const at::NoGradGuard no_grad;
  for (const auto& each : NamedParameters(layers)) {
    at::Tensor parameter = each.second;
    parameter.sub_(parameter.grad(), rate);
    parameter.mutable_grad().reset();
  }
}

void ExpectRefusals(
    const std::function<absl::Status(const LabChange& change)>& train,
    const std::vector<LabRefusal>& refusals) {
  for (const LabRefusal& each : refusals) {
    EXPECT_THAT(train(each.change), Says(each.says));
  }
}

void ExpectBatchRefusals(const LayerSpecs& specs, const LossFunction& loss,
                         const std::vector<int64_t>& parts,
                         const std::vector<LabBatchRefusal>& refusals) {
  const auto expect = [&](Strategy& strategy) {
    for (const LabBatchRefusal& each : refusals) {
      EXPECT_THAT(strategy.TrainStep(each.batch, kLabRate).status(),
                  InvalidArgument(each.says));
      EXPECT_THAT(strategy.Evaluate(each.batch).status(),
                  InvalidArgument(each.says));
    }
  };
  const auto pipeline = MeshStrategy::Create(
      specs, loss,
      LabOptions(LabPipeline(2), static_cast<int64_t>(specs.size())), nullptr);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  expect(**pipeline);
  for (const int64_t each : parts) {
    ExpectOk(RunThreadRanks(1, [&](Communicator& world) -> absl::Status {
      ReplicatedOptions options;
      options.accumulation_steps = each;
      TANDEM_ASSIGN_OR_RETURN(
          const auto strategy,
          MakeReplicated(MakeLayers(specs, kLabSeed), loss, options, world));
      expect(*strategy);
      return absl::OkStatus();
    }));
  }
}

}  // namespace tandem
