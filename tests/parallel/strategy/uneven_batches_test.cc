// Steps with fewer samples than others: the end of a data set.

#include <ATen/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
#include "models/registry.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 24;          // a whole one
constexpr int64_t kMicrobatchSize = 2;  // of it
constexpr uint64_t kSeed = 6;

struct Layout {
  std::string name;
  std::string schedule;
  int ranks;
  int devices;  // of a replica
  int devices_per_rank;
  int chunks = 1;

  int replicas() const { return ranks * devices_per_rank / devices; }
};

const std::vector<Layout>& Layouts() {
  static const auto* const layouts = new std::vector<Layout>{
      {"two replicas", "1f1b", 2, 1, 1},
      {"three replicas", "gpipe", 3, 1, 1},
      {"four replicas", "1f1b", 4, 1, 1},
      {"a pair", "1f1b", 1, 2, 2},
      {"a pair over ranks", "zb_h1", 2, 2, 1},
      {"two pairs", "zb_h1", 2, 2, 2},
      {"three pairs over ranks", "1f1b", 6, 2, 1},
      {"V", "zb_v", 2, 2, 2, 2},
      {"chunks", "interleaved_1f1b", 4, 2, 1, 2},
      {"breadth first", "looped_bfs", 2, 2, 2, 2},
  };
  return *layouts;
}

bool HasTokens(const std::string& model) { return model[0] == 'g'; }

LayerSpecs Specs(const std::string& model) {
  if (model == "batch_norm") {
    Conv2dShape shape;
    shape.in_channels = 2;
    shape.out_channels = 3;
    shape.kernel_size = 3;
    return {Conv2dLayer("conv", shape), BatchNorm2dLayer("norm", 3),
            ReluLayer("relu"),          GlobalAvgPool2dLayer("pool"),
            FlattenLayer("flatten"),    LinearLayer("head", 3, 5)};
  }
  ModelOptions options;
  options.name = model;
  options.tokens = HasTokens(model);
  options.classes = options.tokens ? 20 : 5;
  options.input_shape = {6};
  return *MakeModel(options);
}

Batch WholeBatch(const std::string& model, int64_t size, int step) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", step));
  if (HasTokens(model)) {
    return {at::randint(20, {size, 6}, generator, at::kLong),
            at::randint(20, {size, 6}, generator, at::kLong), size};
  }
  const at::Tensor targets = at::randint(5, {size}, generator, at::kLong);
  if (model == "batch_norm") {
    return {at::randn({size, 2, 6, 6}, generator), targets, size};
  }
  return {at::randn({size, 6}, generator), targets, size};
}

Batch PartOf(const Batch& whole, int64_t first, int64_t size) {
  if (size == 0) return Batch();
  return {whole.inputs.narrow(0, first, size),
          whole.targets.narrow(0, first, size), size};
}

MeshStrategyOptions Options(const LayerSpecs& specs, const Layout& layout) {
  const auto microbatches =
      static_cast<int>(kBatch / kMicrobatchSize / layout.replicas());
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule(
      layout.schedule, {layout.devices, layout.chunks, microbatches});
  options.cuts =
      *UniformCuts(static_cast<int64_t>(specs.size()), options.schedule.stages);
  options.devices.assign(static_cast<size_t>(layout.devices_per_rank),
                         c10::kCPU);
  options.microbatch_size = kMicrobatchSize;
  options.uneven_batches = true;
  options.seed = kSeed;
  options.optimizer = SgdOptions{0.9};
  options.ddp.bucket_cap_mb = 1.0 / 1024;
  return options;
}

struct Outcome {
  std::string bits;
  std::vector<double> losses;  // sums
  NamedTensors parameters;
};

// How many samples each replica has in each step.
using Deal = std::vector<std::vector<int64_t>>;

absl::Status Train(const std::string& model, const Layout& layout,
                   const MeshStrategyOptions& options, const Deal& deal,
                   Communicator* world, Outcome* outcome) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<MeshStrategy> strategy,
      MeshStrategy::Create(Specs(model), CrossEntropy, options, world));
  const int rank = world == nullptr ? 0 : world->rank();
  const auto replica =
      static_cast<size_t>(rank * layout.replicas() / layout.ranks);
  Outcome mine;
  for (size_t step = 0; step < deal.size(); ++step) {
    const std::vector<int64_t>& sizes = deal[step];
    int64_t first = 0, all = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (i < replica) first += sizes[i];
      all += sizes[i];
    }
    const Batch whole = WholeBatch(model, all, static_cast<int>(step));
    TANDEM_ASSIGN_OR_RETURN(
        const Score score,
        strategy->TrainStep(PartOf(whole, first, sizes[replica]), 0.05));
    EXPECT_EQ(score.count, whole.targets.numel());
    mine.losses.push_back(score.loss_sum);
  }
  TANDEM_ASSIGN_OR_RETURN(const WholeState state, strategy->GatherState());
  if (rank != 0) return absl::OkStatus();
  for (const NamedTensors* part :
       {&state.parameters, &state.buffers, &state.optimizer}) {
    for (const auto& [name, tensor] : *part) {
      mine.parameters.emplace_back(name, tensor.detach().clone());
    }
  }
  mine.bits = WeightsSha256(mine.parameters);
  *outcome = std::move(mine);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> Trained(const std::string& model, const Layout& layout,
                                const MeshStrategyOptions& options,
                                const Deal& deal) {
  Outcome outcome;
  TANDEM_RETURN_IF_ERROR(
      layout.ranks == 1
          ? Train(model, layout, options, deal, nullptr, &outcome)
          : RunThreadRanks(layout.ranks, [&](Communicator& world) {
              return Train(model, layout, options, deal, &world, &outcome);
            }));
  return outcome;
}

// The first replicas have all that they can.
Deal InOrder(const std::vector<int64_t>& sizes, int replicas) {
  Deal deal;
  for (int64_t left : sizes) {
    deal.emplace_back();
    for (int i = 0; i < replicas; ++i) {
      deal.back().push_back(std::min(left, kBatch / replicas));
      left -= deal.back().back();
    }
  }
  return deal;
}

// One sample left, a prime number, a microbatch, all but one, none missing.
const std::vector<int64_t> kSizes = {24, 1, 13, 24, 2, 23, 7, 24};

TEST(UnevenBatchesTest, AreReproducibleInEveryLayout) {
  const Layout one = {"one", "1f1b", 1, 1, 1};
  int compared = 0;
  for (const std::string model :
       {"mlp_dropout", "gpt_tiny_tied", "batch_norm"}) {
    for (const int groups : {0, 6}) {
      MeshStrategyOptions options = Options(Specs(model), one);
      options.reproducible = true;
      options.gradient_groups = groups;
      options.clip_norm = 0.5;
      const auto expected = Trained(model, one, options, InOrder(kSizes, 1));
      ASSERT_TRUE(expected.ok()) << expected.status();
      for (const Layout& layout : Layouts()) {
        SCOPED_TRACE(absl::StrCat(model, ", ", layout.name, ", ", groups));
        const bool fits = groups == 0 || (layout.schedule != "gpipe" &&
                                          groups % layout.replicas() == 0);
        if (!fits) continue;
        MeshStrategyOptions its = Options(Specs(model), layout);
        its.reproducible = true;
        its.gradient_groups = groups;
        its.clip_norm = 0.5;
        const auto found =
            Trained(model, layout, its, InOrder(kSizes, layout.replicas()));
        ASSERT_TRUE(found.ok()) << found.status();
        EXPECT_EQ(found->bits, expected->bits);
        EXPECT_EQ(found->losses, expected->losses);
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 3 * (10 + 8));
}

void ExpectClose(const Outcome& found, const Outcome& expected) {
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-4 * expected.losses[i]);
  }
  const std::map<std::string, at::Tensor> tensors(found.parameters.begin(),
                                                  found.parameters.end());
  ASSERT_EQ(tensors.size(), expected.parameters.size());
  for (const auto& [name, tensor] : expected.parameters) {
    ASSERT_EQ(tensors.count(name), 1u) << name;
    EXPECT_TRUE(tensors.at(name).allclose(tensor, 1e-3, 1e-5)) << name;
  }
}

// Each sample weighs as much as any other, whoever has it.
TEST(UnevenBatchesTest, TheGradientIsThatOfTheMeanOverAllSamples) {
  const Layout one = {"one", "gpipe", 1, 1, 1};
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied"}) {
    for (const Layout& layout : Layouts()) {
      SCOPED_TRACE(absl::StrCat(model, ", ", layout.name));
      const auto replicas = static_cast<size_t>(layout.replicas());
      const int64_t most = kBatch / layout.replicas();
      Deal deal = {std::vector<int64_t>(replicas, most)};
      // The last one alone has a sample; then all have different numbers.
      deal.emplace_back(replicas, 0);
      deal.back().back() = 1;
      deal.emplace_back();
      for (size_t i = 0; i < replicas; ++i) {
        deal.back().push_back((static_cast<int64_t>(5 * i) + 3) % (most + 1));
      }
      deal.push_back(deal.front());
      std::vector<int64_t> sizes;
      for (const auto& each : deal) {
        int64_t all = 0;
        for (const int64_t size : each) all += size;
        sizes.push_back(all);
      }
      MeshStrategyOptions whole = Options(Specs(model), one);
      whole.microbatch_size = kBatch;
      whole.schedule = *MakeSchedule("gpipe", {1, 1, 1});
      const auto expected = Trained(model, one, whole, InOrder(sizes, 1));
      ASSERT_TRUE(expected.ok()) << expected.status();
      for (const bool by_size : {true, false}) {
        MeshStrategyOptions options = Options(Specs(model), layout);
        // Else as many microbatches as can be, of sizes that differ by one.
        if (!by_size) options.microbatch_size = 0;
        const auto found = Trained(model, layout, options, deal);
        ASSERT_TRUE(found.ok()) << found.status();
        ExpectClose(*found, *expected);
      }
    }
  }
}

TEST(UnevenBatchesErrorTest, WhatIsMissingMustBeMissingAtTheEnd) {
  const Layout two = {"two replicas", "1f1b", 2, 1, 1};
  MeshStrategyOptions options = Options(Specs("mlp_small"), two);
  options.reproducible = true;
  const auto said = [&](const Deal& deal) {
    return std::string(
        Trained("mlp_small", two, options, deal).status().message());
  };
  EXPECT_THAT(said({{11, 12}}),
              HasSubstr("replicas have batches of 11, 12 samples: to be "
                        "reproducible each must have 12"));
  EXPECT_THAT(said({{0, 1}}), HasSubstr("batches of 0, 1 samples"));
  EXPECT_THAT(said({{13, 0}}), HasSubstr("batches of 13, 0 samples"));
  EXPECT_THAT(said({{0, 0}}), HasSubstr("at least one sample"));
  EXPECT_THAT(said({{12, 3}}), "");
}

TEST(UnevenBatchesErrorTest, MoreMicrobatchesThanTheSchedulesAreRefused) {
  const Layout two = {"two replicas", "1f1b", 2, 1, 1};
  const MeshStrategyOptions options = Options(Specs("mlp_small"), two);
  const auto status = Trained("mlp_small", two, options, {{12, 13}}).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a batch of 13 samples gives 7 microbatches, but "
                        "schedule 1f1b has 6"));
}

TEST(UnevenBatchesErrorTest, RanksOfAReplicaHaveOneSize) {
  const Layout pair = {"a pair", "1f1b", 2, 2, 1};
  const LayerSpecs specs = Specs("mlp_small");
  const absl::Status status =
      RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(
            const std::unique_ptr<MeshStrategy> strategy,
            MeshStrategy::Create(specs, CrossEntropy, Options(specs, pair),
                                 &world));
        const absl::Status said =
            strategy
                ->TrainStep(WholeBatch("mlp_small", 4 + world.rank(), 0), 0.05)
                .status();
        EXPECT_THAT(std::string(said.message()),
                    HasSubstr("ranks 0 and 1 of one replica have batches of 4 "
                              "and 5 samples"));
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(UnevenBatchesErrorTest, ReproducibleNeedsAMicrobatchSize) {
  const Layout one = {"one", "1f1b", 1, 1, 1};
  MeshStrategyOptions options = Options(Specs("mlp_small"), one);
  options.reproducible = true;
  options.microbatch_size = 0;
  const auto status =
      MeshStrategy::Create(Specs("mlp_small"), CrossEntropy, options, nullptr)
          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("microbatch_size"));
}

}  // namespace
}  // namespace tandem
