// Steps with fewer samples than others: the end of a data set.

#include <ATen/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"
#include "tests/parallel/strategy/technique_rows.h"

namespace tandem::uneven_batches_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 24;          // a whole one
constexpr int64_t kMicrobatchSize = 2;  // of it
constexpr uint64_t kSeed = 6;

std::vector<LabLayout> Layouts() {
  return LabLayouts(
      "1f1b 2x1x1, gpipe 3x1x1, 1f1b 4x1x1, 1f1b 1x1x2, zb_h1 1x2x1, "
      "zb_h1 2x1x2, 1f1b 3x2x1, zb_v 2x1x2x2, interleaved_1f1b 2x2x1x2, "
      "looped_bfs 2x1x2x2");
}

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
  return LabSpecs(model);
}

Batch WholeBatch(const std::string& model, int64_t size, int step) {
  if (model != "batch_norm") return LabBatch(model, size, kSeed, step);
  return RandomBatch({{2, 6, 6}, 5}, size, kSeed, step);
}

Batch PartOf(const Batch& whole, int64_t first, int64_t size) {
  if (size == 0) return Batch();
  return {whole.inputs.narrow(0, first, size),
          whole.targets.narrow(0, first, size), size};
}

LabJob Job(const std::string& model, const LabChange& change = nullptr) {
  LabJob job;
  job.specs = [model] { return Specs(model); };
  job.loss = CrossEntropy;
  job.change = [change](MeshStrategyOptions& options) {
    options.microbatch_size = kMicrobatchSize;
    options.uneven_batches = true;
    options.seed = kSeed;
    options.optimizer = SgdOptions{0.9};
    options.ddp.bucket_cap_mb = 1.0 / 1024;
    if (change) change(options);
  };
  return job;
}

// How many samples each replica has in each step.
using Deal = std::vector<std::vector<int64_t>>;

int64_t SumOf(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

LabJob DealtJob(const std::string& model, const Deal& deal,
                const LabChange& change) {
  const auto whole = [=](int step) {
    return WholeBatch(model, SumOf(deal[static_cast<size_t>(step)]), step);
  };
  LabJob job = Job(model, change);
  job.share = [=](int step, int replica) {
    const std::vector<int64_t>& sizes = deal[static_cast<size_t>(step)];
    const int64_t first = SumOf({sizes.begin(), sizes.begin() + replica});
    return PartOf(whole(step), first, sizes[static_cast<size_t>(replica)]);
  };
  job.steps = static_cast<int>(deal.size());
  job.step = [=](const LabRank& rank, const Batch& batch,
                 int step) -> absl::StatusOr<Score> {
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->TrainStep(batch, 0.05));
    EXPECT_EQ(score.count, whole(step).targets.numel());
    return score;
  };
  return job;
}

absl::StatusOr<LabOutcome> Trained(const std::string& model,
                                   const LabLayout& layout, const Deal& deal,
                                   const LabChange& change = nullptr) {
  return TrainInLab(layout, DealtJob(model, deal, change));
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

std::vector<TechniqueRow> Rows() {
  std::vector<TechniqueRow> rows;
  for (const std::string model :
       {"mlp_dropout", "gpt_tiny_tied", "batch_norm"}) {
    for (const int groups : {0, 6}) {
      const auto change = [=](MeshStrategyOptions& options) {
        options.reproducible = true;
        options.gradient_groups = groups;
        options.clip_norm = 0.5;
      };
      TechniqueRow row;
      row.name = absl::StrCat(model, groups == 0 ? "" : "_in_groups");
      row.job = [=](const LabLayout& layout) {
        return DealtJob(model, InOrder(kSizes, layout.replicas), change);
      };
      for (const LabLayout& layout : Layouts()) {
        const bool fits = groups == 0 || (layout.schedule != "gpipe" &&
                                          groups % layout.replicas == 0);
        if (fits) row.columns.push_back(layout);
      }
      rows.push_back(row);
    }
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(UnevenBatches, TechniqueTest,
                         testing::ValuesIn(Rows()), RowName);

TEST(UnevenBatchesTest, HaveTheirCells) {
  size_t cells = 0;
  for (const TechniqueRow& row : Rows()) cells += row.columns.size();
  EXPECT_EQ(cells, 3u * (10 + 8));
}

// Each sample weighs as much as any other, whoever has it.
TEST(UnevenBatchesTest, TheGradientIsThatOfTheMeanOverAllSamples) {
  const LabLayout one = LabLayoutNamed("gpipe 1x1x1", 1);
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied"}) {
    for (const LabLayout& layout : Layouts()) {
      SCOPED_TRACE(absl::StrCat(model, ", ", layout.name));
      const auto replicas = static_cast<size_t>(layout.replicas);
      const int64_t most = kBatch / layout.replicas;
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
      for (const auto& each : deal) sizes.push_back(SumOf(each));
      const auto expected =
          Trained(model, one, InOrder(sizes, 1),
                  [](auto& options) { options.microbatch_size = kBatch; });
      // By size; else as many microbatches as can be, of sizes that differ by
      // one.
      for (const int64_t size : {kMicrobatchSize, int64_t{0}}) {
        const auto found = Trained(model, layout, deal, [&](auto& options) {
          options.microbatch_size = size;
        });
        ExpectClose(found, expected, {1e-4, 1e-3, 1e-5});
      }
    }
  }
}

TEST(UnevenBatchesErrorTest, WhatIsMissingMustBeMissingAtTheEnd) {
  const auto said = [&](const Deal& deal) {
    const auto trained =
        Trained("mlp_small", {"two replicas", "1f1b", 2}, deal,
                [](auto& options) { options.reproducible = true; });
    return std::string(trained.status().message());
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
  const auto status =
      Trained("mlp_small", {"two replicas", "1f1b", 2}, {{12, 13}}).status();
  EXPECT_THAT(status, Says("a batch of 13 samples gives 7 microbatches, but "
                           "schedule 1f1b has 6"));
}

TEST(UnevenBatchesErrorTest, RanksOfAReplicaHaveOneSize) {
  ExpectOk(OnLabRanks(
      {"a pair", "1f1b", 1, 2}, Job("mlp_small"), [](const LabRank& rank) {
        const Batch batch = WholeBatch("mlp_small", 4 + rank.rank, 0);
        EXPECT_THAT(rank.strategy->TrainStep(batch, 0.05).status(),
                    Says("ranks 0 and 1 of one replica have batches of 4 "
                         "and 5 samples"));
        return absl::OkStatus();
      }));
}

TEST(UnevenBatchesErrorTest, ReproducibleNeedsAMicrobatchSize) {
  const auto trained = Trained("mlp_small", {"one"}, {}, [](auto& options) {
    options.reproducible = true;
    options.microbatch_size = 0;
  });
  EXPECT_THAT(trained.status(), Says("microbatch_size"));
}

}  // namespace
}  // namespace tandem::uneven_batches_test
