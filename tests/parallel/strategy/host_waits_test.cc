// The host waits for no device within a training step: not in any layout, and
// not for what is trained in it. Scores are read when they are asked for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/barrier.h"
#include "core/base/status_macros.h"
#include "core/sim/streams/streams.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "parallel/step/step_score.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int kWarmUp = 3;
constexpr int kSteps = 4;

struct Waits {
  sim::HostWaits steps;
  sim::HostWaits reading;
};

// The waits of kSteps steps of all ranks, and of reading their scores.
// `measures`: with the norms of gradients.
absl::StatusOr<Waits> WaitsOf(const LabLayout& layout, const std::string& model,
                              const LabChange& change, bool measures = false) {
  const LabJob job = ModelJob(model, 0, 0, change);
  const int ranks = layout.ranks();
  absl::Barrier begin(ranks), end(ranks), reading(ranks), read(ranks);
  Waits waits;
  TANDEM_RETURN_IF_ERROR(
      OnLabRanks(layout, job, [&](const LabRank& rank) -> absl::Status {
        const auto run = [&](int first, int count) {
          absl::Status done;
          for (int step = first; done.ok() && step < first + count; ++step) {
            if (measures) rank.strategy->MeasureGradientNorm();
            done = SubmitLabSteps(*rank.strategy, model, step, 1);
          }
          return done;
        };
        TANDEM_RETURN_IF_ERROR(run(0, kWarmUp));
        TANDEM_RETURN_IF_ERROR(rank.strategy->TakeScores().status());
        begin.Block();
        sim::HostWaits before = sim::CountedHostWaits();
        const absl::Status submitted = run(kWarmUp, kSteps);
        end.Block();
        if (rank.rank == 0) waits.steps = sim::HostWaitsSince(before);
        before = sim::CountedHostWaits();
        reading.Block();
        const auto scores = rank.strategy->TakeScores();
        read.Block();
        if (rank.rank == 0) waits.reading = sim::HostWaitsSince(before);
        TANDEM_RETURN_IF_ERROR(submitted);
        TANDEM_RETURN_IF_ERROR(scores.status());
        EXPECT_EQ(scores->size(), static_cast<size_t>(kSteps));
        for (const StepScore& each : *scores) {
          EXPECT_GT(each.score.loss(), 0);
          EXPECT_GT(each.score.count, 0);
          EXPECT_EQ(each.gradient_norm.has_value(), measures);
        }
        return absl::OkStatus();
      }));
  return waits;
}

std::vector<LabLayout> Layouts() {
  std::vector<LabLayout> layouts = LabLayouts(
      "sequential 1x1x1, sequential 1x1x2, 1f1b 1x1x2, gpipe 1x1x2, "
      "zb_h1 1x1x2, zb_v 1x1x2x2, interleaved_1f1b 1x1x2x2, sequential 2x1x1, "
      "1f1b 2x1x2, 1f1b 1x2x1, 1f1b 2x2x1, zb_h1 2x2x1");
  for (LabLayout& each : layouts) each.microbatches = 4 * each.replicas;
  return layouts;
}

// fp16: of devices it is each rank that reads whether its steps were skipped.
constexpr char kScaled[] = "fp16, a scaled loss";

void Scaled(MeshStrategyOptions& options) {
  options.optimizer = SgdOptions{0.9};
  options.ddp.mixed_precision.param_dtype = at::kHalf;
  options.grad_scaler.emplace();
  options.grad_scaler->init_scale = 1024;
}

void Compressed(MeshStrategyOptions& options) {
  PowerSgdOptions power_sgd;
  power_sgd.start_power_sgd_iter = 0;
  power_sgd.min_compression_rate = 0.1;
  options.make_hook = [=]() -> absl::StatusOr<CommunicationHook> {
    TANDEM_ASSIGN_OR_RETURN(const PowerSgd made, PowerSgd::Create(power_sgd));
    return made.Hook();
  };
}

struct Technique {
  const char* name;
  LabChange change;
};

std::vector<Technique> Techniques() {
  return {
      {"SGD", [](auto& o) { o.optimizer = SgdOptions{0.9}; }},
      {"Adam", [](auto& o) { o.optimizer = AdamOptions(); }},
      {"checkpointing",
       [](auto& o) {
         o.pipeline.checkpointing = ActivationCheckpointing::kAlways;
       }},
      {"find_unused_parameters",
       [](auto& o) { o.ddp.find_unused_parameters = true; }},
      {"small buckets", [](auto& o) { o.ddp.bucket_cap_mb = 1e-5; }},
      {"clip_value", [](auto& o) { o.clip_value = 0.1; }},
      {"bf16",
       [](auto& o) { o.ddp.mixed_precision.param_dtype = at::kBFloat16; }},
      {"PowerSGD", Compressed},
      {"averages of weights", [](auto& o) { o.ema_decay = 0.9; }},
      {kScaled, Scaled},
      {kScaled,
       [](auto& o) {
         Scaled(o);
         o.ema_decay = 0.9;
       }},
      {kScaled,
       [](auto& o) {
         Scaled(o);
         o.optimizer = AdamWOptions();
       }},
  };
}

std::vector<std::pair<std::string, Technique>> Cells() {
  std::vector<std::pair<std::string, Technique>> cells;
  for (const Technique& each : Techniques()) {
    cells.emplace_back("mlp_dropout", each);
  }
  cells.emplace_back("gpt_tiny_tied", Technique{"plain", nullptr});
  return cells;
}

TEST(HostWaitsTest, NoneWithinAStep) {
  int cells = 0;
  for (const LabLayout& layout : Layouts()) {
    for (const auto& [model, technique] : Cells()) {
      SCOPED_TRACE(
          absl::StrCat(layout.name, ", ", model, ", ", technique.name));
      const auto waits = WaitsOf(layout, model, technique.change);
      ASSERT_TRUE(waits.ok()) << waits.status();
      EXPECT_THAT(waits->steps, IsEmpty());
      // Where a replica's last stage is, once for all the steps.
      const int ranks =
          technique.name == kScaled ? layout.ranks() : layout.replicas;
      EXPECT_THAT(waits->reading, ElementsAre(Pair("copy to the host", ranks)));
      ++cells;
    }
  }
  std::cout << cells << " cells of layouts and techniques\n";
}

// It is read with the score, where there are gradients.
TEST(HostWaitsTest, NoneForTheNormOfGradients) {
  for (const LabLayout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    const auto waits =
        WaitsOf(layout, "gpt_tiny_tied", nullptr, /*measures=*/true);
    ASSERT_TRUE(waits.ok()) << waits.status();
    EXPECT_THAT(waits->steps, IsEmpty());
    EXPECT_THAT(
        waits->reading,
        ElementsAre(Pair("copy to the host", layout.ranks() * layout.devices)));
  }
}

}  // namespace
}  // namespace tandem
