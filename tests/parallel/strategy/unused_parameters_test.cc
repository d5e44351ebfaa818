// Parameters that some steps do not use, in a stage of a pipeline and its
// replicas: they are left alone, as on one device.

#include <ATen/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/example_job.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::unused_parameters_test {
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

Batch BatchOf(int step) {
  const int64_t size = kMicrobatches * kMicrobatchSize;
  Batch batch = RandomBatch({{kWidth}, 5}, size, kSeed, step);
  const at::Tensor use = at::zeros({size, 1});
  for (const int m : Uses()[static_cast<size_t>(step)]) {
    use.narrow(0, m * kMicrobatchSize, kMicrobatchSize).fill_(1);
  }
  batch.further_inputs["use"] = use;
  return batch;
}

// Checks after each step that what the step uses moved, and nothing else did.
absl::StatusOr<Score> Step(const LabRank& rank, const Batch& batch, int step) {
  const TensorsByName before = CopiesOf(rank.strategy->Parameters());
  TANDEM_ASSIGN_OR_RETURN(const Score score,
                          rank.strategy->TrainStep(batch, 0.05));
  for (const auto& [name, tensor] : rank.strategy->Parameters()) {
    const bool is_used =
        name != "choosy.never" && (name != "choosy.sometimes" ||
                                   !Uses()[static_cast<size_t>(step)].empty());
    EXPECT_NE(tensor.cpu().equal(before.at(name)), is_used)
        << name << " in step " << step;
  }
  return score;
}

absl::StatusOr<LabOutcome> Trained(LabLayout layout, bool reproducible,
                                   bool looks_for_unused = true,
                                   Sharding sharding = Sharding::kOff) {
  layout.microbatches = kMicrobatches;
  LabJob job;
  job.specs = Specs;
  job.loss = CrossEntropy;
  job.change = [&](MeshStrategyOptions& options) {
    // What has a gradient, be it zero, moves.
    SgdOptions sgd{0.9};
    sgd.weight_decay = 0.1;
    options.optimizer = sgd;
    options.ddp.bucket_cap_mb = 64.0 / (1 << 20);
    options.ddp.find_unused_parameters = looks_for_unused;
    options.reproducible = reproducible;
    options.shard = sharding;
    options.shard_min_num_params = 1;
  };
  job.batch = BatchOf;
  job.steps = static_cast<int>(Uses().size());
  job.step = Step;
  return TrainInLab(layout, job);
}

std::vector<LabLayout> Layouts() {
  return LabLayouts(
      "1f1b 1x1x2, gpipe 1x3x1, zb_h1 1x2x1, 1f1b 2x1x1, 1f1b 2x1x2, "
      "zb_h1 2x2x1, gpipe 2x1x3, 1f1b 4x1x1");
}

TEST(UnusedParametersTest, AreLeftAloneInAnyLayout) {
  for (const bool reproducible : {false, true}) {
    const auto expected = Trained({"one"}, reproducible);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(expected->optimizer.count("choosy.never.momentum_buffer"), 0u);
    EXPECT_EQ(expected->optimizer.count("choosy.sometimes.momentum_buffer"),
              1u);
    for (const LabLayout& layout : Layouts()) {
      SCOPED_TRACE(
          absl::StrCat(layout.name, reproducible ? ", same bits" : ""));
      for (const Sharding sharding : {Sharding::kOff, Sharding::kGradients}) {
        const auto found = Trained(layout, reproducible,
                                   /*looks_for_unused=*/true, sharding);
        ExpectClose(found, expected);
        if (reproducible) ExpectSameBits(found, expected);
      }
    }
  }
}

// Whatever step it misses: static graphs are learned in the first.
TEST(UnusedParametersTest, AreLeftAloneByAReplicaWithoutSamples) {
  const auto trained = [](bool is_static, int empty) {
    LabJob job;
    job.specs = Specs;
    job.loss = CrossEntropy;
    job.change = [=](MeshStrategyOptions& options) {
      options.optimizer = AdamWOptions();
      options.uneven_batches = true;
      options.ddp.static_graph = is_static;
      options.ddp.skip_all_reduce_unused_params = !is_static;
    };
    job.share = [=](int step, int replica) {
      if (step == empty && replica == 1) return Batch();
      Batch mine = BatchOf(3);
      mine.size /= 2;
      const int64_t first = replica * mine.size;
      mine.inputs = mine.inputs.narrow(0, first, mine.size);
      mine.targets = mine.targets.narrow(0, first, mine.size);
      c10::IValue& use = mine.further_inputs["use"];
      use = use.toTensor().narrow(0, first, mine.size);
      return mine;
    };
    return TrainInLab(LabLayoutNamed("1f1b 2x1x1", kMicrobatches), job);
  };
  for (const bool is_static : {false, true}) {
    for (const int empty : {0, 1, 2}) {
      SCOPED_TRACE(absl::StrCat(is_static, " ", empty));
      const auto found = trained(is_static, empty);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->held[0].count("choosy.never.exp_avg"), 0u);
      EXPECT_EQ(found->held[0].count("choosy.sometimes.exp_avg"), 1u);
      ExpectSameBits(found->held[1], found->held[0]);
    }
  }
}

// Several replicas must agree; one has nobody to disagree with.
TEST(UnusedParametersTest, AreNamedWhereTheyAreNotLookedFor) {
  for (const bool reproducible : {false, true}) {
    for (const LabLayout& layout : Layouts()) {
      SCOPED_TRACE(
          absl::StrCat(layout.name, reproducible ? ", same bits" : ""));
      for (const Sharding sharding : {Sharding::kOff, Sharding::kGradients}) {
        const absl::Status status =
            Trained(layout, reproducible, /*looks_for_unused=*/false, sharding)
                .status();
        if (layout.replicas == 1) {
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
}

// Training in which some parameters are each rank's own (parameters_to_ignore).

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Between two layers that ranks have in common two of a width of their own.
LayerList ModelOf(int rank) {
  LayerList layers = PlainModel(3);
  layers.insert(layers.begin() + 2,
                SeededLinear("own1", kHidden, 3 + rank, 20 + rank));
  layers.insert(layers.begin() + 3,
                SeededLinear("own2", 3 + rank, kHidden, 40 + rank));
  return layers;
}

ReplicatedOptions OwnLayersIgnored() {
  ReplicatedOptions options;
  options.ddp.parameters_to_ignore = {"own1.weight", "own1.bias", "own2.weight",
                                      "own2.bias"};
  options.optimizer = SgdOptions{0.9};
  return options;
}

NamedTensors Part(const NamedTensors& tensors, bool own) {
  NamedTensors part;
  for (const auto& [name, tensor] : tensors) {
    if (absl::StartsWith(name, "own") == own) {
      part.emplace_back(name, tensor.detach().clone());
    }
  }
  return part;
}

// How many different values ranks have.
absl::StatusOr<size_t> Kinds(const NamedTensors& tensors, Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(WeightsSha256(tensors)));
  return std::set<std::string>(all.begin(), all.end()).size();
}

// After every step: what is common has the same bits on all ranks, what is
// not, not; and both were trained.
absl::Status ExpectCommonAlike(const Strategy& strategy, Communicator& world) {
  const NamedTensors& all = strategy.Parameters();
  TANDEM_ASSIGN_OR_RETURN(const size_t common, Kinds(Part(all, false), world));
  TANDEM_ASSIGN_OR_RETURN(const size_t own, Kinds(Part(all, true), world));
  EXPECT_EQ(common, 1u);
  EXPECT_EQ(own, static_cast<size_t>(world.size()));
  return absl::OkStatus();
}

absl::Status TrainAlike(const ReplicatedOptions& options, Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(auto strategy,
                          NewReplicated(ModelOf(world.rank()), options, world));
  TANDEM_RETURN_IF_ERROR(ExpectCommonAlike(*strategy, world));
  for (int step = 0; step < 5; ++step) {
    const std::string before =
        WeightsSha256(Part(strategy->Parameters(), true));
    const Batch batch = Share(GlobalBatch(step, 4 * world.size()), world);
    TANDEM_RETURN_IF_ERROR(strategy->TrainStep(batch, 0.1).status());
    TANDEM_RETURN_IF_ERROR(strategy->Synchronise());
    TANDEM_RETURN_IF_ERROR(ExpectCommonAlike(*strategy, world));
    EXPECT_NE(WeightsSha256(Part(strategy->Parameters(), true)), before);
  }
  return absl::OkStatus();
}

class IgnoredParametersTest : public DeviceTypeTest {};

TEST_P(IgnoredParametersTest, AreLeftAloneByAveragingOfGradients) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) {
    return TrainAlike(OwnLayersIgnored(), world);
  }));
}

TEST_P(IgnoredParametersTest, AreLeftAloneByAveragingOfParameters) {
  ReplicatedOptions options = OwnLayersIgnored();
  options.averaging = ParameterAveragingOptions{2, 1};
  for (int ranks : {2, 3}) {
    ExpectOk(RunDeviceRanks(ranks, [&](Communicator& world) {
      return TrainAlike(options, world);
    }));
  }
}

// The ignored gradients, another norm on each rank, would have every rank clip
// the averaged ones by another factor.
TEST_P(IgnoredParametersTest, HaveNoPartInTheNormOfTheOthers) {
  for (double type : {2., 1., 3., kInfinity}) {
    ReplicatedOptions options = OwnLayersIgnored();
    options.clip_value = 0.2;
    options.clip_norm = 0.03;
    options.clip_norm_type = type;
    ExpectOk(RunDeviceRanks(
        3, [&](Communicator& world) { return TrainAlike(options, world); }));
  }
}

double Distance(const NamedTensors& a, const NamedTensors& b, double type) {
  double sum = 0, greatest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double norm =
        at::linalg_vector_norm(a[i].second.sub(b[i].second), type)
            .item<double>();
    sum += std::isinf(type) ? 0 : std::pow(norm, type);
    greatest = std::max(greatest, norm);
  }
  return std::isinf(type) ? greatest : std::pow(sum, 1 / type);
}

TEST_P(IgnoredParametersTest, AreClippedByANormOfTheirOwn) {
  for (double type : {2., 1., kInfinity}) {
    ExpectOk(RunDeviceRanks(2, [&](Communicator& world) -> absl::Status {
      ReplicatedOptions options = OwnLayersIgnored();
      options.clip_norm = 0.01;
      options.clip_norm_type = type;
      TANDEM_ASSIGN_OR_RETURN(
          auto strategy, NewReplicated(ModelOf(world.rank()), options, world));
      const NamedTensors live = strategy->Parameters();
      const NamedTensors common = Part(live, false);
      const NamedTensors own = Part(live, true);
      // The first step of momentum is the gradient itself.
      TANDEM_RETURN_IF_ERROR(
          strategy->TrainStep(Share(GlobalBatch(0, 8), world), 1).status());
      EXPECT_NEAR(Distance(Part(live, false), common, type), 0.01, 1e-5);
      EXPECT_NEAR(Distance(Part(live, true), own, type), 0.01, 1e-5);
      return absl::OkStatus();
    }));
  }
}

TEST_P(IgnoredParametersTest, ANormThatIsNotFiniteEndsTheJobWhenAsked) {
  for (bool error_if_nonfinite : {false, true}) {
    ExpectOk(RunDeviceRanks(2, [&](Communicator& world) -> absl::Status {
      ReplicatedOptions options;
      options.clip_norm = 1;
      options.error_if_nonfinite = error_if_nonfinite;
      TANDEM_ASSIGN_OR_RETURN(auto strategy,
                              NewReplicated(PlainModel(3), options, world));
      Batch batch = Share(GlobalBatch(0, 8), world);
      if (world.rank() == 1) batch.inputs.fill_(std::nan(""));
      const absl::Status status = strategy->TrainStep(batch, 0.1).status();
      if (!error_if_nonfinite) return status;
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange,
                                   "the gradient of fc1.weight is not finite"));
      return absl::OkStatus();
    }));
  }
}

TANDEM_ON_DEVICE_TYPES(IgnoredParametersTest);

}  // namespace
}  // namespace tandem::unused_parameters_test
