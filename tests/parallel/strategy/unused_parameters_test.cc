// Parameters that some steps do not use, in a stage of a pipeline and its
// replicas: they are left alone, as on one device.

#include <ATen/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/random/random.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int64_t kWidth = 9;
constexpr int64_t kMicrobatchSize = 3;
constexpr int kMicrobatches = 4;  // of all replicas
constexpr uint64_t kSeed = 8;

class Choosy : public torch::nn::Module {
 public:
  Choosy() {
    for (const char* name : {"always", "sometimes", "never"}) {
      register_parameter(
          name,
          at::randn({kWidth, kWidth}, GeneratorFor(kSeed, name)).mul_(0.3));
    }
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& use) {
    const at::Tensor y = x.add(x.matmul(named_parameters()["always"]));
    if (use.sum().item<double>() == 0) return y;
    return y.add(x.matmul(named_parameters()["sometimes"]));
  }
};

// Uses `sometimes` where the batch's further input "use" says so.
LayerSpec ChoosyLayer() {
  LayerSpec spec;
  spec.name = "choosy";
  spec.type = "Choosy";
  spec.links.reads = {"use"};
  spec.make = [](uint64_t /*seed*/) {
    const auto module = std::make_shared<Choosy>();
    Layer layer;
    layer.name = "choosy";
    layer.module = module;
    layer.forward_with_skips = [module](const at::Tensor& x, Skips& skips) {
      return module->forward(x, skips.at("use"));
    };
    return layer;
  };
  return spec;
}

LayerSpecs Specs() {
  return {LinearLayer("fc1", kWidth, kWidth), ReluLayer("relu1"), ChoosyLayer(),
          ReluLayer("relu2"), LinearLayer("head", kWidth, 5)};
}

// By step: which microbatches of the whole batch use it. Nobody; one replica
// alone, each in turn; all; nobody again.
const std::vector<std::vector<int>>& Uses() {
  static const auto* const uses =
      new std::vector<std::vector<int>>{{}, {0}, {3}, {0, 1, 2, 3}, {}, {1, 2}};
  return *uses;
}

Batch BatchOf(size_t step, int replica, int replicas) {
  const int64_t size = kMicrobatches * kMicrobatchSize;
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", step));
  const at::Tensor inputs = at::randn({size, kWidth}, generator);
  const at::Tensor targets = at::randint(5, {size}, generator, at::kLong);
  const at::Tensor use = at::zeros({size, 1});
  for (const int m : Uses()[step]) {
    use.narrow(0, m * kMicrobatchSize, kMicrobatchSize).fill_(1);
  }
  const int64_t share = size / replicas;
  Batch batch = {inputs.narrow(0, replica * share, share),
                 targets.narrow(0, replica * share, share), share};
  batch.further_inputs["use"] = use.narrow(0, replica * share, share);
  return batch;
}

struct Layout {
  std::string name;
  std::string schedule;
  int ranks;
  int devices;  // of a replica
  int devices_per_rank;

  int replicas() const { return ranks * devices_per_rank / devices; }
};

MeshStrategyOptions Options(const Layout& layout) {
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule(
      layout.schedule, {layout.devices, 1, kMicrobatches / layout.replicas()});
  options.cuts = *UniformCuts(5, layout.devices);
  options.devices.assign(static_cast<size_t>(layout.devices_per_rank),
                         c10::kCPU);
  // What has a gradient, be it zero, moves.
  SgdOptions sgd{0.9};
  sgd.weight_decay = 0.1;
  options.optimizer = sgd;
  options.ddp.bucket_cap_mb = 64.0 / (1 << 20);
  options.ddp.find_unused_parameters = true;
  return options;
}

struct Outcome {
  std::string bits;
  std::vector<double> losses;  // sums
  std::map<std::string, at::Tensor> state;
};

absl::Status Train(const Layout& layout, const MeshStrategyOptions& options,
                   Communicator* world, Outcome* outcome) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<MeshStrategy> strategy,
      MeshStrategy::Create(Specs(), CrossEntropy, options, world));
  const int rank = world == nullptr ? 0 : world->rank();
  Outcome mine;
  for (size_t step = 0; step < Uses().size(); ++step) {
    NamedTensors before;
    for (const auto& [name, tensor] : strategy->Parameters()) {
      before.emplace_back(name, tensor.detach().clone());
    }
    TANDEM_ASSIGN_OR_RETURN(
        const Score score,
        strategy->TrainStep(
            BatchOf(step, rank * layout.replicas() / layout.ranks,
                    layout.replicas()),
            0.05));
    mine.losses.push_back(score.loss_sum);
    const NamedTensors after = strategy->Parameters();
    for (size_t i = 0; i < after.size(); ++i) {
      const bool is_used =
          after[i].first != "choosy.never" &&
          (after[i].first != "choosy.sometimes" || !Uses()[step].empty());
      EXPECT_NE(after[i].second.equal(before[i].second), is_used)
          << after[i].first << " in step " << step;
    }
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
  mine.state.insert(all.begin(), all.end());
  *outcome = std::move(mine);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> Trained(const Layout& layout,
                                const MeshStrategyOptions& options) {
  Outcome outcome;
  TANDEM_RETURN_IF_ERROR(
      layout.ranks == 1
          ? Train(layout, options, nullptr, &outcome)
          : RunThreadRanks(layout.ranks, [&](Communicator& world) {
              return Train(layout, options, &world, &outcome);
            }));
  return outcome;
}

const std::vector<Layout>& Layouts() {
  static const auto* const layouts = new std::vector<Layout>{
      {"a pair", "1f1b", 1, 2, 2},
      {"three stages", "gpipe", 3, 3, 1},
      {"zero bubble", "zb_h1", 2, 2, 1},
      {"two replicas", "1f1b", 2, 1, 1},
      {"two pairs", "1f1b", 2, 2, 2},
      {"two pairs over ranks", "zb_h1", 4, 2, 1},
      {"two of three stages", "gpipe", 2, 3, 3},
      {"four replicas", "1f1b", 4, 1, 1},
  };
  return *layouts;
}

TEST(UnusedParametersTest, AreLeftAloneInAnyLayout) {
  const Layout one = {"one", "1f1b", 1, 1, 1};
  for (const bool reproducible : {false, true}) {
    MeshStrategyOptions options = Options(one);
    options.reproducible = reproducible;
    const auto expected = Trained(one, options);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(expected->state.count("choosy.never.momentum_buffer"), 0u);
    EXPECT_EQ(expected->state.count("choosy.sometimes.momentum_buffer"), 1u);
    for (const Layout& layout : Layouts()) {
      SCOPED_TRACE(
          absl::StrCat(layout.name, reproducible ? ", same bits" : ""));
      MeshStrategyOptions its = Options(layout);
      its.reproducible = reproducible;
      const auto found = Trained(layout, its);
      ASSERT_TRUE(found.ok()) << found.status();
      ASSERT_EQ(found->state.size(), expected->state.size());
      if (reproducible) {
        EXPECT_EQ(found->bits, expected->bits);
        EXPECT_EQ(found->losses, expected->losses);
      }
      for (const auto& [name, tensor] : expected->state) {
        ASSERT_EQ(found->state.count(name), 1u) << name;
        EXPECT_TRUE(found->state.at(name).allclose(tensor, 1e-4, 1e-6)) << name;
      }
    }
  }
}

// Several replicas must agree; one has nobody to disagree with.
TEST(UnusedParametersTest, AreNamedWhereTheyAreNotLookedFor) {
  for (const bool reproducible : {false, true}) {
    for (const Layout& layout : Layouts()) {
      SCOPED_TRACE(
          absl::StrCat(layout.name, reproducible ? ", same bits" : ""));
      MeshStrategyOptions options = Options(layout);
      options.reproducible = reproducible;
      options.ddp.find_unused_parameters = false;
      const absl::Status status = Trained(layout, options).status();
      if (layout.replicas() == 1) {
        EXPECT_TRUE(status.ok()) << status;
        continue;
      }
      EXPECT_FALSE(status.ok());
      const std::string message(status.message());
      EXPECT_THAT(message, HasSubstr("choosy.never"));
      EXPECT_THAT(message, HasSubstr("find_unused_parameters"));
    }
  }
}

}  // namespace
}  // namespace tandem
