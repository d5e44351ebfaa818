// A model with several losses: one of an inner layer, and a loss function of
// two terms, wherever the model is cut.

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/z_loss.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/replicated.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int64_t kWidth = 9;
constexpr int64_t kBatch = 24;
constexpr int kSteps = 3;
constexpr uint64_t kSeed = 2;
constexpr double kRate = 0.1;

// Adds the mean square of what passes.
LayerSpec Penalty(const std::string& layer, const std::string& loss) {
  LayerSpec spec;
  spec.name = layer;
  spec.type = "Penalty";
  spec.make = [layer, loss](uint64_t /*seed*/) {
    Layer made;
    made.name = layer;
    made.forward = [loss](const at::Tensor& x) {
      AddAuxiliaryLoss(loss, x.square().mean().mul(0.5));
      return x;
    };
    return made;
  };
  return spec;
}

// Two layers' losses have one name.
LayerSpecs Specs() {
  return {LinearLayer("fc1", kWidth, kWidth),
          Penalty("penalty1", "square"),
          ReluLayer("relu1"),
          LinearLayer("fc2", kWidth, kWidth),
          Penalty("penalty2", "square"),
          LinearLayer("head", kWidth, 5)};
}

LossFunction Loss() { return WithZLoss(CrossEntropy, 0.1); }

Batch BatchOf(int step, int replica, int replicas) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", step));
  const at::Tensor inputs = at::randn({kBatch, kWidth}, generator);
  const at::Tensor targets = at::randint(5, {kBatch}, generator, at::kLong);
  const int64_t size = kBatch / replicas;
  return {inputs.narrow(0, replica * size, size),
          targets.narrow(0, replica * size, size), size};
}

struct Outcome {
  NamedTensors parameters;
  std::vector<double> losses;  // sums
  std::vector<std::map<std::string, double>> added;
};

// The whole model on the whole batch, by hand.
Outcome ByHand() {
  const LayerList layers = MakeLayers(Specs(), kSeed);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = BatchOf(step, 0, 1);
    LossTerms terms;
    LossResult result;
    {
      const LossTerms::Scope scope(&terms);
      result = Loss()(Forward(layers, batch.inputs), batch.targets);
    }
    at::Tensor all = result.loss;
    outcome.added.emplace_back();
    for (const auto& each : terms.terms()) {
      all = all.add(each.loss);
      outcome.added.back()[each.name] += each.loss.item<double>();
    }
    all.backward();
    outcome.losses.push_back(result.score.loss_sum);
    const at::NoGradGuard no_grad;
    for (const auto& each : NamedParameters(layers)) {
      at::Tensor parameter = each.second;
      parameter.sub_(parameter.grad(), kRate);
      parameter.mutable_grad().reset();
    }
  }
  outcome.parameters = NamedParameters(layers);
  return outcome;
}

struct Layout {
  std::string name;
  std::string schedule;
  int ranks;
  int devices;  // of a replica
  int devices_per_rank;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever;
  int weight_gradient_batch = 1;

  int replicas() const { return ranks * devices_per_rank / devices; }
};

MeshStrategyOptions OptionsOf(const Layout& layout, bool reproducible) {
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule(layout.schedule,
                                   {layout.devices, 1, 12 / layout.replicas()});
  options.cuts = *UniformCuts(6, layout.devices);
  options.devices.assign(static_cast<size_t>(layout.devices_per_rank),
                         c10::kCPU);
  options.pipeline.checkpointing = layout.checkpointing;
  options.weight_gradient_batch = layout.weight_gradient_batch;
  options.seed = kSeed;
  options.optimizer = SgdOptions{};
  options.reproducible = reproducible;
  return options;
}

using Make = std::function<absl::StatusOr<std::unique_ptr<Strategy>>(
    Communicator* world)>;

absl::Status Train(const Make& make, int pipe, Communicator* world,
                   Outcome* outcome) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Strategy> strategy,
                          make(world));
  const int rank = world == nullptr ? 0 : world->rank();
  const int ranks = world == nullptr ? 1 : world->size();
  Outcome mine;
  EXPECT_TRUE(strategy->AuxiliaryLosses().empty());
  for (int step = 0; step < kSteps; ++step) {
    TANDEM_ASSIGN_OR_RETURN(
        const Score score,
        strategy->TrainStep(BatchOf(step, rank / pipe, ranks / pipe), kRate));
    mine.losses.push_back(score.loss_sum);
    mine.added.push_back(strategy->AuxiliaryLosses());
    // Nothing is added in evaluation.
    TANDEM_RETURN_IF_ERROR(strategy->Evaluate(BatchOf(step, 0, 1)).status());
    EXPECT_EQ(strategy->AuxiliaryLosses(), mine.added.back());
  }
  // All ranks know them.
  std::string text;
  for (const auto& [name, mean] : mine.added.back()) {
    absl::StrAppend(&text, name, " ", mean, "\n");
  }
  if (world != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            world->AllGatherString(text));
    EXPECT_THAT(all, testing::Each(text));
  }
  TANDEM_ASSIGN_OR_RETURN(const WholeState state, strategy->GatherState());
  if (rank != 0) return absl::OkStatus();
  for (const auto& [name, tensor] : state.parameters) {
    mine.parameters.emplace_back(name, tensor.detach().clone());
  }
  *outcome = std::move(mine);
  return absl::OkStatus();
}

Outcome Trained(const Make& make, int ranks, int pipe) {
  Outcome outcome;
  const absl::Status status =
      ranks == 1 ? Train(make, pipe, nullptr, &outcome)
                 : RunThreadRanks(ranks, [&](Communicator& world) {
                     return Train(make, pipe, &world, &outcome);
                   });
  EXPECT_TRUE(status.ok()) << status;
  return outcome;
}

Outcome TrainedHybrid(const Layout& layout, bool reproducible) {
  return Trained(
      [&](Communicator* world) -> absl::StatusOr<std::unique_ptr<Strategy>> {
        return MeshStrategy::Create(Specs(), Loss(),
                                    OptionsOf(layout, reproducible), world);
      },
      layout.ranks, layout.ranks / layout.replicas());
}

void ExpectClose(const Outcome& found, const Outcome& expected) {
  ASSERT_EQ(found.added.size(), expected.added.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-5 * expected.losses[i]);
    ASSERT_EQ(found.added[i].size(), 2u);
    for (const auto& [name, mean] : expected.added[i]) {
      ASSERT_EQ(found.added[i].count(name), 1u) << name;
      EXPECT_NEAR(found.added[i].at(name), mean, 1e-5 * mean) << name;
    }
  }
  const std::map<std::string, at::Tensor> tensors(found.parameters.begin(),
                                                  found.parameters.end());
  ASSERT_EQ(tensors.size(), expected.parameters.size());
  for (const auto& [name, tensor] : expected.parameters) {
    ASSERT_EQ(tensors.count(name), 1u) << name;
    EXPECT_TRUE(tensors.at(name).allclose(tensor, 1e-4, 1e-6)) << name;
  }
}

const std::vector<Layout>& Layouts() {
  static const auto* const layouts = new std::vector<Layout>{
      {"two replicas", "1f1b", 2, 1, 1},
      {"three replicas", "gpipe", 3, 1, 1},
      {"a pair", "1f1b", 1, 2, 2},
      {"three stages over ranks", "gpipe", 3, 3, 1},
      {"checkpointing", "1f1b", 1, 3, 3, ActivationCheckpointing::kAlways},
      {"two pairs", "zb_h1", 2, 2, 2},
      {"two pairs over ranks", "zb_h1", 4, 2, 1,
       ActivationCheckpointing::kExceptLast},
  };
  return *layouts;
}

TEST(AuxiliaryLossesTest, AreTrainedAndReportedInAnyLayout) {
  const Outcome expected = ByHand();
  EXPECT_GT(expected.added[0].at("square"), 0.01);
  EXPECT_GT(expected.added[0].at("z_loss"), 0.01);
  ExpectClose(TrainedHybrid({"one", "1f1b", 1, 1, 1}, false), expected);
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    ExpectClose(TrainedHybrid(layout, false), expected);
    if (layout.replicas() == 1) {
      Layout together = layout;
      together.weight_gradient_batch = 3;
      ExpectClose(TrainedHybrid(together, false), expected);
    }
  }
}

TEST(AuxiliaryLossesTest, AreReproducible) {
  const Outcome expected = TrainedHybrid({"one", "1f1b", 1, 1, 1}, true);
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    const Outcome found = TrainedHybrid(layout, true);
    EXPECT_EQ(WeightsSha256(found.parameters),
              WeightsSha256(expected.parameters));
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.added, expected.added);
  }
}

TEST(AuxiliaryLossesTest, ReplicasInOnePieceTrainOnThemToo) {
  const Outcome expected = ByHand();
  for (const int ranks : {1, 2, 3}) {
    for (const int accumulation : {1, 4}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, accumulating ", accumulation));
      ReplicatedOptions options;
      options.seed = kSeed;
      options.accumulation_steps = accumulation;
      const Make make = [&](Communicator* world)
          -> absl::StatusOr<std::unique_ptr<Strategy>> {
        return MakeReplicated(MakeLayers(Specs(), kSeed), Loss(), options,
                              *world);
      };
      Outcome found;
      const absl::Status status = RunThreadRanks(
          ranks,
          [&](Communicator& world) { return Train(make, 1, &world, &found); });
      EXPECT_TRUE(status.ok()) << status;
      ExpectClose(found, expected);
    }
  }
}

TEST(AuxiliaryLossesErrorTest, ALossThatIsNoScalarNamesItsLayer) {
  LayerSpecs specs = Specs();
  specs[1].make = [](uint64_t /*seed*/) {
    Layer layer;
    layer.name = "penalty1";
    layer.forward = [](const at::Tensor& x) {
      AddAuxiliaryLoss("square", x.square());
      return x;
    };
    return layer;
  };
  const auto strategy = MeshStrategy::Create(
      specs, Loss(), OptionsOf({"a pair", "1f1b", 1, 2, 2}, false), nullptr);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  const absl::Status status =
      (*strategy)->TrainStep(BatchOf(0, 0, 1), kRate).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("layer penalty1: loss square must be a scalar"));
}

}  // namespace
}  // namespace tandem
