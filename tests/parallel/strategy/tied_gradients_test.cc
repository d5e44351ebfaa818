// Weights that several layers share, wherever the model is cut.

#include "parallel/strategy/tied_gradients.h"

#include <ATen/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/tied_linear.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"

namespace tandem {
namespace {

// A copy of a weight "w0", "w1", ... in each stage, as one rank has it.
class Copies {
 public:
  explicit Copies(const std::vector<int>& stages) {
    for (const int stage : stages) {
      parameters_.emplace_back(absl::StrCat("w", stage),
                               at::ones({3, 5}).requires_grad_());
      flat_.push_back(std::move(MakeFlatBuffers({parameters_.back()}).front()));
    }
  }

  FlatBufferList buffers() const { return FlatBufferList(flat_); }
  void Give(size_t copy, double gradient) {
    parameters_[copy].second.mul(gradient).sum().backward();
  }
  // Of the copy: "none" without a gradient.
  std::string grad(size_t copy) const {
    const at::Tensor& grad = parameters_[copy].second.grad();
    if (!grad.defined()) return "none";
    return absl::StrCat(grad[2][4].item<int64_t>());
  }

 private:
  NamedTensors parameters_;
  FlatBuffers flat_;
};

TiedGroup GroupOf(int members) {
  TiedGroup group;
  for (int i = 0; i < members; ++i) {
    group.push_back({i, absl::StrCat("w", i)});
  }
  return group;
}

// The gradient that each of three copies ends with, over that many ranks, where
// copy i has gradients[i] (0: none).
std::vector<std::string> SumOf(const std::vector<double>& gradients, int ranks,
                               TiedOrder order) {
  const Schedule schedule = *MakeSchedule("1f1b", {3, 1, 1});
  std::vector<std::string> sums(3);
  const auto run = [&](Communicator* group) -> absl::Status {
    const PipelineLayout layout = {
        std::vector<c10::Device>(3 / static_cast<size_t>(ranks), c10::kCPU),
        group};
    std::vector<int> mine;
    for (int i = 0; i < 3; ++i) {
      if (layout.IsHere(i)) mine.push_back(i);
    }
    Copies copies(mine);
    TANDEM_ASSIGN_OR_RETURN(
        const std::unique_ptr<TiedGradients> tied,
        TiedGradients::Create({GroupOf(3)}, schedule, layout, copies.buffers(),
                              order));
    EXPECT_FALSE(tied->empty());
    for (size_t i = 0; i < mine.size(); ++i) {
      const double gradient = gradients[static_cast<size_t>(mine[i])];
      if (gradient != 0) copies.Give(i, gradient);
    }
    TANDEM_RETURN_IF_ERROR(tied->Sum());
    for (size_t i = 0; i < mine.size(); ++i) {
      sums[static_cast<size_t>(mine[i])] = copies.grad(i);
    }
    return absl::OkStatus();
  };
  const absl::Status status =
      ranks == 1
          ? run(nullptr)
          : RunThreadRanks(ranks, [&](Communicator& all) { return run(&all); });
  EXPECT_TRUE(status.ok()) << status;
  return sums;
}

std::vector<std::string> Thrice(const std::string& each) {
  return {each, each, each};
}

TEST(TiedGradientsTest, EveryCopyGetsTheSum) {
  for (const TiedOrder order : {TiedOrder::kByRank, TiedOrder::kByCopy}) {
    for (const int ranks : {1, 3}) {
      EXPECT_EQ(SumOf({1, 2, 4}, ranks, order), Thrice("7"));
      EXPECT_EQ(SumOf({0, 2, 0}, ranks, order), Thrice("2"));
      EXPECT_EQ(SumOf({0, 0, 4}, ranks, order), Thrice("4"));
      EXPECT_EQ(SumOf({1, 0, 4}, ranks, order), Thrice("5"));
    }
  }
}

// As in a model in one piece: the optimizer leaves it alone.
TEST(TiedGradientsTest, AWeightThatNoCopyUsesHasNoGradient) {
  for (const TiedOrder order : {TiedOrder::kByRank, TiedOrder::kByCopy}) {
    for (const int ranks : {1, 3}) {
      EXPECT_EQ(SumOf({0, 0, 0}, ranks, order), Thrice("none"));
    }
  }
}

// 1e8 + 3 is 1e8, and 3 + 3 + 1e8 is not.
TEST(TiedGradientsTest, CopiesAreAddedFromTheLastToTheFirst) {
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(SumOf({3, 3, 1e8}, ranks, TiedOrder::kByCopy),
              Thrice("100000000"));
    EXPECT_EQ(SumOf({1e8, 3, 3}, ranks, TiedOrder::kByCopy),
              Thrice("100000008"));
  }
}

// fc1's weight comes back in fc2, fc3, ..., each tied to it or to the one
// before.
LayerSpecs Users(int users, bool chained) {
  constexpr int64_t kWidth = 9;
  LayerSpecs specs = {LinearLayer("fc1", kWidth, kWidth)};
  LayerSpec owner = specs.front();
  for (int i = 2; i <= users; ++i) {
    specs.push_back(ReluLayer(absl::StrCat("relu", i)));
    const std::string name = absl::StrCat("fc", i);
    specs.push_back(
        TiedLinearLayer(name, owner, absl::StrCat(owner.name, ".weight")));
    if (chained) owner = specs.back();
  }
  specs.push_back(LinearLayer("head", kWidth, 5));
  return specs;
}

struct Layout {
  int replicas;
  int stages;
  int ranks;  // of a replica
};

constexpr int kMicrobatches = 12;  // of all replicas
constexpr int kSteps = 3;

Batch BatchOf(int step, int replica, int replicas) {
  const at::Generator generator = GeneratorFor(1, absl::StrCat("batch ", step));
  const int64_t size = 24 / replicas;
  const at::Tensor inputs = at::randn({24, 9}, generator);
  const at::Tensor targets = at::randint(5, {24}, generator, at::kLong);
  return {inputs.narrow(0, replica * size, size),
          targets.narrow(0, replica * size, size), size};
}

struct Outcome {
  std::string bits;  // of weights and optimizer state
  std::vector<double> losses;
  NamedTensors parameters;
};

absl::Status Train(const LayerSpecs& specs, const Layout& layout,
                   bool reproducible, Communicator* world, Outcome* outcome) {
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule(
      "1f1b", {layout.stages, 1, kMicrobatches / layout.replicas});
  options.cuts =
      *UniformCuts(static_cast<int64_t>(specs.size()), layout.stages);
  options.devices.assign(static_cast<size_t>(layout.stages / layout.ranks),
                         c10::kCPU);
  options.optimizer = SgdOptions{0.9};
  options.clip_norm = 0.3;
  options.reproducible = reproducible;
  options.seed = 4;
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<MeshStrategy> strategy,
      MeshStrategy::Create(specs, CrossEntropy, options, world));
  const int rank = world == nullptr ? 0 : world->rank();
  Outcome mine;
  for (int step = 0; step < kSteps; ++step) {
    TANDEM_ASSIGN_OR_RETURN(
        const Score score,
        strategy->TrainStep(BatchOf(step, rank / layout.ranks, layout.replicas),
                            0.05));
    mine.losses.push_back(score.loss_sum);
  }
  TANDEM_ASSIGN_OR_RETURN(const WholeState state, strategy->GatherState());
  if (rank != 0) return absl::OkStatus();
  NamedTensors all;
  for (const NamedTensors* part : {&state.parameters, &state.optimizer}) {
    for (const auto& [name, tensor] : *part) {
      all.emplace_back(name, tensor.detach().clone());
    }
  }
  mine.bits = WeightsSha256(all);
  mine.parameters = std::move(all);
  *outcome = std::move(mine);
  return absl::OkStatus();
}

Outcome Trained(const LayerSpecs& specs, const Layout& layout,
                bool reproducible) {
  Outcome outcome;
  const int ranks = layout.replicas * layout.ranks;
  const absl::Status status =
      ranks == 1
          ? Train(specs, layout, reproducible, nullptr, &outcome)
          : RunThreadRanks(ranks, [&](Communicator& world) {
              return Train(specs, layout, reproducible, &world, &outcome);
            });
  EXPECT_TRUE(status.ok()) << status;
  return outcome;
}

const std::vector<Layout>& Layouts() {
  static const auto* const layouts =
      new std::vector<Layout>{{2, 1, 1}, {1, 2, 1}, {1, 2, 2}, {1, 3, 1},
                              {1, 3, 3}, {2, 3, 3}, {3, 2, 2}, {2, 3, 1}};
  return *layouts;
}

std::string NameOf(int users, bool chained, const Layout& layout) {
  return absl::StrCat(users, " users", chained ? ", chained, " : ", ",
                      layout.replicas, " x ", layout.stages, " over ",
                      layout.ranks, " ranks");
}

TEST(TiedWeightsTest, AnyNumberOfUsersIsReproducible) {
  for (const int users : {3, 5}) {
    for (const bool chained : {false, true}) {
      const LayerSpecs specs = Users(users, chained);
      const Outcome one = Trained(specs, {1, 1, 1}, /*reproducible=*/true);
      EXPECT_NE(one.losses[0], one.losses[2]);
      for (const Layout& layout : Layouts()) {
        SCOPED_TRACE(NameOf(users, chained, layout));
        const Outcome found = Trained(specs, layout, /*reproducible=*/true);
        EXPECT_EQ(found.bits, one.bits);
        EXPECT_EQ(found.losses, one.losses);
      }
    }
  }
}

// The uncut model has one tensor for them, no copies.
TEST(TiedWeightsTest, CopiesTrainAsTheOneTensorOfTheUncutModel) {
  for (const bool chained : {false, true}) {
    const LayerSpecs specs = Users(4, chained);
    const Outcome one = Trained(specs, {1, 1, 1}, /*reproducible=*/false);
    for (const Layout& layout : Layouts()) {
      SCOPED_TRACE(NameOf(4, chained, layout));
      const Outcome found = Trained(specs, layout, /*reproducible=*/false);
      for (size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(found.losses[i], one.losses[i], 1e-4);
      }
      ASSERT_EQ(found.parameters.size(), one.parameters.size());
      for (size_t i = 0; i < one.parameters.size(); ++i) {
        EXPECT_EQ(found.parameters[i].first, one.parameters[i].first);
        EXPECT_TRUE(found.parameters[i].second.allclose(
            one.parameters[i].second, 1e-4, 1e-6))
            << one.parameters[i].first;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
