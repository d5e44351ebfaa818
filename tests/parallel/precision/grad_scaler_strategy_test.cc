// UpdateOptions::grad_scaler in layouts of the mesh: whoever overflows, all
// ranks and stages skip the step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/loss/loss.h"
#include "core/model/layer_list.h"
#include "core/precision/loss_scale.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/precision/overflow_lab.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::grad_scaler_strategy_test {
namespace {

// Adam counts steps in its state.
const std::map<std::string, OptimizerOptions>& Optimizers() {
  static const auto* const optimizers =
      new std::map<std::string, OptimizerOptions>{{"sgd", SgdOptions{0.9}},
                                                  {"adam", AdamOptions()}};
  return *optimizers;
}

void ExpectSkipped(const LabLayout& layout, const OverflowFault& fault,
                   const LabChange& change) {
  const std::vector<double> scales =
      fault.step == 0 ? std::vector<double>{512, 512, 512, 1024}
                      : std::vector<double>{1024, 512, 512, 512};
  ExpectSkipped(layout, fault, scales,
                [&](int steps) { return GatedJob(steps, Scaled(change)); });
}

TEST(GradScalerStrategyTest, AnOverflowInOneStageIsSkippedByAll) {
  for (const LabLayout& layout : OverflowLayouts()) {
    for (const auto& [name, optimizer] : Optimizers()) {
      for (const std::string gate : {"gate1", "gate2"}) {
        for (const double value : {kInfinity, kNan}) {
          SCOPED_TRACE(absl::StrCat(layout.name, ", ", name, ", ", gate));
          ExpectSkipped(layout, {1, -1, gate, value},
                        [&, &optimizer = optimizer](auto& options) {
                          options.optimizer = optimizer;
                        });
        }
      }
    }
  }
}

TEST(GradScalerStrategyTest, AnOverflowOnOneRankIsSkippedByAll) {
  for (const LabLayout& layout : OverflowLayouts()) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      SCOPED_TRACE(absl::StrCat(layout.name, ", rank ", rank));
      const bool is_last = rank % layout.pipe == layout.pipe - 1;
      ExpectSkipped(layout, {1, rank, is_last ? "gate2" : "gate1", -kInfinity},
                    [](auto& options) { options.clip_norm = 0.3; });
    }
  }
}

// Replicas then share the looking, and leave out what they know to be finite.
TEST(GradScalerStrategyTest, WithoutAScaleAnOverflowIsSkippedByAllToo) {
  const std::vector<LabChange> changes = {
      nullptr,
      [](auto& options) {
        options.averaging = ParameterAveragingOptions{100, 0};
      },
      [](auto& options) {
        options.ddp.parameters_to_ignore = {"gate1.weight", "gate2.weight"};
      }};
  int cases = 0;
  for (const LabLayout& layout : OverflowLayouts()) {
    for (size_t change = 0; change < changes.size(); ++change) {
      if (change > 0 && layout.replicas == 1) continue;
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        SCOPED_TRACE(absl::StrCat(layout.name, ", ", change, ", rank ", rank));
        const bool is_last = rank % layout.pipe == layout.pipe - 1;
        const OverflowFault fault = {1, rank, is_last ? "gate2" : "gate1",
                                     kInfinity};
        ExpectSkipped(layout, fault, {1, 1, 1, 1}, [&](int steps) {
          LabJob job = GatedJob(steps, SkippingAlone(changes[change]));
          job.specs = WideSpecs;
          return job;
        });
        ++cases;
      }
    }
  }
  EXPECT_EQ(cases, 1 + 3 * 2 + 1 + 2 + 3 * 4);
}

// Nobody else hears of the gradient itself.
TEST(GradScalerStrategyTest, WhatIsNotAveragedIsSkippedByAllToo) {
  LabLayout two = OverflowLayouts()[1];
  LabLayout hybrid = OverflowLayouts()[4];
  for (const LabLayout& layout : {two, hybrid}) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      SCOPED_TRACE(absl::StrCat(layout.name, ", rank ", rank));
      const bool is_last = rank % layout.pipe == layout.pipe - 1;
      const std::string gate = is_last ? "gate2" : "gate1";
      ExpectSkipped(layout, {1, rank, gate, kNan}, [&](auto& options) {
        options.ddp.parameters_to_ignore = {absl::StrCat(gate, ".weight")};
      });
      ExpectSkipped(layout, {1, rank, gate, kNan}, [](auto& options) {
        options.averaging = ParameterAveragingOptions{100, 0};
      });
    }
  }
}

class GradScalerDevicesTest : public DeviceTypeTest {};

TEST_P(GradScalerDevicesTest, AnOverflowIsSkippedByAll) {
  for (LabLayout layout : OverflowLayouts()) {
    SCOPED_TRACE(layout.name);
    layout.device_pool = Devices(layout.ranks() * layout.devices);
    ExpectSkipped(layout, {1, -1, "gate1", kInfinity},
                  [](auto& options) { options.clip_value = 0.1; });
  }
}

// Nor do averages take part, which begin with the first step that is done:
// whether the host decides, which clips by the norm, or the devices do.
TEST_P(GradScalerDevicesTest, AveragesDoNotMoveInASkippedStep) {
  for (LabLayout layout : OverflowLayouts()) {
    layout.device_pool = Devices(layout.ranks() * layout.devices);
    for (const int step : {0, 1}) {
      for (const double clip_norm : {0.0, 0.3}) {
        SCOPED_TRACE(absl::StrCat(layout.name, ", step ", step, ", clipped to ",
                                  clip_norm));
        ExpectSkipped(layout, {step, -1, "gate1", kInfinity},
                      [=](auto& options) {
                        options.clip_norm = clip_norm;
                        options.ema_decay = 0.75;
                      });
      }
    }
  }
}

TANDEM_ON_DEVICE_TYPES(GradScalerDevicesTest);

// Multiplying by a power of two rounds nothing.
TEST(GradScalerStrategyTest, ChangesNoBitOfWhatDoesNotOverflow) {
  const std::map<std::string, LabChange> changes = {
      {"plain", nullptr},
      {"clipped by norm", [](auto& o) { o.clip_norm = 0.1; }},
      {"clipped by value", [](auto& o) { o.clip_value = 0.01; }},
      {"adam", [](auto& o) { o.optimizer = AdamOptions(); }},
      {"recomputed",
       [](auto& o) {
         o.pipeline.checkpointing = ActivationCheckpointing::kAlways;
       }},
      {"reproducible", [](auto& o) { o.reproducible = true; }}};
  for (const LabLayout& layout : OverflowLayouts()) {
    for (const auto& [name, change] : changes) {
      for (const std::string model :
           {"gated", "mlp_dropout", "gpt_tiny_tied"}) {
        const bool takes_long = model == "gpt_tiny_tied";
        if (takes_long && name != "plain" && name != "reproducible") continue;
        SCOPED_TRACE(absl::StrCat(layout.name, ", ", name, ", ", model));
        const auto train = [&, m = model](const LabChange& job_change) {
          LabJob job = m == "gated"
                           ? GatedJob(4, job_change)
                           : ModelJob(m, kOverflowBatch, 4, job_change);
          job.test = 9;
          return TrainInLab(layout, job);
        };
        ExpectSameBits(train(Scaled(change, 65536)), train(change));
      }
    }
  }
}

TEST(GradScalerStrategyTest, LossesAreReportedAsTheyAre) {
  const auto losses = [](const LabChange& change) {
    std::map<std::string, double> reported;
    LabJob job = GatedJob(2, change);
    job.end = [&](const LabRank& rank) {
      if (rank.rank == 0) reported = rank.strategy->AuxiliaryLosses();
      return absl::OkStatus();
    };
    EXPECT_TRUE(TrainInLab(LabPipeline(2, 2), job).ok());
    return reported;
  };
  const auto expected = losses(nullptr);
  EXPECT_EQ(expected.count("gates"), 1u);
  EXPECT_EQ(losses(Scaled()), expected);
}

// Between a step's halves, to be looked at or changed.
TEST(GradScalerStrategyTest, GradientsAreUnscaledWhenTheyAreGiven) {
  const auto gradients = [](const LabChange& change) {
    TensorsByName given;
    LabJob job = GatedJob(1, change);
    job.step = [&](const LabRank& rank, const Batch& batch,
                   int) -> absl::StatusOr<Score> {
      TANDEM_ASSIGN_OR_RETURN(const Score score,
                              rank.strategy->ComputeGradients(batch));
      given = CopiesOf(rank.strategy->Gradients());
      TANDEM_RETURN_IF_ERROR(rank.strategy->SkipUpdate());
      return score;
    };
    EXPECT_TRUE(TrainInLab(LabPipeline(2), job).ok());
    return given;
  };
  ExpectSameBits(gradients(Scaled()), gradients(nullptr));
}

TEST(GradScalerStrategyTest, GrowsAsItIsTold) {
  for (const LabLayout& layout : OverflowLayouts()) {
    LabJob job = GatedJob(7, Scaled());
    job.end = [](const LabRank& rank) {
      EXPECT_EQ(rank.strategy->loss_scale()->scale(), 4096);
      EXPECT_EQ(rank.strategy->loss_scale()->growth_tracker(), 1);
      return absl::OkStatus();
    };
    EXPECT_TRUE(TrainInLab(layout, job).ok());
  }
}

TEST(GradScalerStrategyTest, AScaleThatFallsWithoutEndIsAnError) {
  for (const LabLayout& layout : OverflowLayouts()) {
    LabJob job = GatedJob(9, Scaled(nullptr, 2 * kLeastLossScale));
    job.loss = [](const at::Tensor& outputs, const at::Tensor& targets) {
      LossResult result = CrossEntropy(outputs, targets);
      result.loss = result.loss * kInfinity;
      return result;
    };
    const absl::Status status = TrainInLab(layout, job).status();
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kOutOfRange,
                         "gradients of the last 2 steps were not finite"));
  }
}

TEST(GradScalerStrategyTest, RanksAgreeOnIt) {
  LabJob job = GatedJob(1, nullptr);
  job.make = [](Communicator* world) {
    MeshStrategyOptions options = LabOptions(OverflowLayouts()[1], 6);
    options.grad_scaler.emplace();
    options.grad_scaler->growth_interval = 5 + world->rank();
    return MeshStrategy::Create(GatedSpecs(), CrossEntropy, options, world);
  };
  EXPECT_THAT(TrainInLab(OverflowLayouts()[1], job).status(),
              Says("grad_scaler"));
}

TEST(GradScalerStrategyTest, OptionsOutOfRangeAreNamed) {
  const auto refused =
      TrainInLab(OverflowLayouts()[0], GatedJob(1, [](auto& options) {
                   options.grad_scaler.emplace();
                   options.grad_scaler->backoff_factor = 1;
                 }));
  EXPECT_THAT(refused.status(),
              Says("backoff_factor is 1: must be greater than 0"));
}

}  // namespace
}  // namespace tandem::grad_scaler_strategy_test
