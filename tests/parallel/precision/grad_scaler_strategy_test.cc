// UpdateOptions::grad_scaler in layouts of the mesh: whoever overflows, all
// ranks and stages skip the step.

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/precision/loss_scale.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/module_layer.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::grad_scaler_strategy_test {
namespace {

constexpr int64_t kBatch = 24;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A layer with a weight that a test can get at, and a loss of its own.
struct Gate : torch::nn::Module {
  Gate() : weight(register_parameter("weight", at::ones({8}))) {}
  at::Tensor forward(const at::Tensor& x) {
    AddAuxiliaryLoss("gates", weight.square().mean());
    return x * weight;
  }
  at::Tensor weight;
};

LayerSpec GateLayer(const std::string& name) {
  return ModuleLayer<Gate>(
      name, "Gate", [] { return std::make_shared<Gate>(); },
      [](const InitialParameter& parameter) { parameter.values.fill_(1); });
}

// A gate in each of two stages.
LayerSpecs GatedSpecs() {
  return {LinearLayer("fc1", 6, 8), GateLayer("gate1"),
          ReluLayer("relu1"),       LinearLayer("fc2", 8, 8),
          GateLayer("gate2"),       LinearLayer("fc3", 8, 5)};
}

std::vector<LabLayout> Layouts() {
  std::vector<LabLayout> layouts = LabLayouts(
      "sequential 1x1x1, sequential 2x1x1, 1f1b 1x1x2, 1f1b 1x2x1, 1f1b 2x2x1",
      /*microbatches=*/4);
  layouts.back().microbatches = 8;
  return layouts;
}

LabChange Scaled(const LabChange& further = nullptr, double init_scale = 1024) {
  return [=](MeshStrategyOptions& options) {
    options.grad_scaler.emplace();
    options.grad_scaler->init_scale = init_scale;
    options.grad_scaler->growth_interval = 3;
    if (further) further(options);
  };
}

LabJob GatedJob(int steps, const LabChange& change) {
  LabJob job = ModelJob("mlp_small", kBatch, steps, change);
  job.specs = GatedSpecs;
  return job;
}

// Where a gradient is spoilt.
struct Fault {
  int step;
  int rank;  // -1: all
  std::string gate;
  double value;
};

// Spoils a rank's own gates' gradients in the step under way.
class Spoiler {
 public:
  void Begin(const LabRank& rank, const Fault& fault) {
    for (const auto& [name, parameter] : rank.strategy->Parameters()) {
      const bool hit = (fault.rank < 0 || fault.rank == rank.rank) &&
                       name == absl::StrCat(fault.gate, ".weight");
      if (!hit) continue;
      at::Tensor weight = parameter;
      weight.register_hook([this, fault](const at::Tensor& gradient) {
        at::Tensor spoilt = gradient.clone();
        if (step_ == fault.step) spoilt[3] = fault.value;
        return spoilt;
      });
    }
  }
  void set_step(int step) { step_ = step; }

 private:
  int step_ = -1;
};

// What a rank has seen of its scale, step by step.
struct Seen {
  std::vector<double> scales;
  std::vector<bool> skipped;
};

TensorsByName HeldBy(const Strategy& strategy) {
  TensorsByName held = CopiesOf(strategy.Parameters());
  held.merge(CopiesOf(strategy.OptimizerState()));
  return held;
}

// A job with that fault; that ranks keep what they have in that step, and what
// they have seen, is noted by rank.
LabJob FaultyJob(LabJob job, const Fault& fault,
                 const std::shared_ptr<std::vector<Seen>>& seen) {
  const auto spoilers = std::make_shared<std::vector<Spoiler>>(seen->size());
  const auto of = [](auto& all, const LabRank& rank) -> auto& {
    return (*all)[static_cast<size_t>(rank.rank)];
  };
  job.begin = [=](const LabRank& rank) {
    of(spoilers, rank).Begin(rank, fault);
    return absl::OkStatus();
  };
  job.step = [=](const LabRank& rank, const Batch& batch,
                 int step) -> absl::StatusOr<Score> {
    of(spoilers, rank).set_step(step);
    const TensorsByName before = HeldBy(*rank.strategy);
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->TrainStep(batch, kLabRate));
    if (step == fault.step) ExpectSameBits(HeldBy(*rank.strategy), before);
    const LossScale& scale = *rank.strategy->loss_scale();
    of(seen, rank).scales.push_back(scale.scale());
    of(seen, rank).skipped.push_back(scale.last_was_skipped());
    return score;
  };
  return job;
}

// Adam counts steps in its state.
const std::map<std::string, OptimizerOptions>& Optimizers() {
  static const auto* const optimizers =
      new std::map<std::string, OptimizerOptions>{{"sgd", SgdOptions{0.9}},
                                                  {"adam", AdamOptions()}};
  return *optimizers;
}

// Trains on batches 0, 1, 2, 3 with a fault in step 1: as on 0, 2, 3. Or with
// one in step 0.
void ExpectSkipped(const LabLayout& layout, const Fault& fault,
                   const LabChange& change) {
  const auto seen =
      std::make_shared<std::vector<Seen>>(static_cast<size_t>(layout.ranks()));
  const auto found =
      TrainInLab(layout, FaultyJob(GatedJob(4, Scaled(change)), fault, seen));
  for (const Seen& each : *seen) {
    const std::vector<double> scales =
        fault.step == 0 ? std::vector<double>{512, 512, 512, 1024}
                        : std::vector<double>{1024, 512, 512, 512};
    EXPECT_EQ(each.scales, scales);
    std::vector<bool> skipped(4, false);
    skipped[static_cast<size_t>(fault.step)] = true;
    EXPECT_EQ(each.skipped, skipped);
  }
  LabJob without = GatedJob(3, Scaled(change));
  without.batch = [&](int step) {
    return LabBatch("mlp_small", kBatch, kLabSeed,
                    step < fault.step ? step : step + 1);
  };
  const auto expected = TrainInLab(layout, without);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  ExpectSameBits(found->model, expected->model);
  ExpectSameBits(found->optimizer, expected->optimizer);
  ASSERT_EQ(found->held.size(), expected->held.size());
  for (size_t rank = 0; rank < found->held.size(); ++rank) {
    ExpectSameBits(found->held[rank], expected->held[rank]);
  }
}

TEST(GradScalerStrategyTest, AnOverflowInOneStageIsSkippedByAll) {
  for (const LabLayout& layout : Layouts()) {
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
  for (const LabLayout& layout : Layouts()) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      SCOPED_TRACE(absl::StrCat(layout.name, ", rank ", rank));
      const bool is_last = rank % layout.pipe == layout.pipe - 1;
      ExpectSkipped(layout, {1, rank, is_last ? "gate2" : "gate1", -kInfinity},
                    [](auto& options) { options.clip_norm = 0.3; });
    }
  }
}

// Nobody else hears of the gradient itself.
TEST(GradScalerStrategyTest, WhatIsNotAveragedIsSkippedByAllToo) {
  LabLayout two = Layouts()[1];
  LabLayout hybrid = Layouts()[4];
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
  for (LabLayout layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    layout.device_pool = Devices(layout.ranks() * layout.devices);
    ExpectSkipped(layout, {1, -1, "gate1", kInfinity},
                  [](auto& options) { options.clip_value = 0.1; });
  }
}

// Nor do averages take part, which begin with the first step that is done:
// whether the host decides, which clips by the norm, or the devices do.
TEST_P(GradScalerDevicesTest, AveragesDoNotMoveInASkippedStep) {
  for (LabLayout layout : Layouts()) {
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
  for (const LabLayout& layout : Layouts()) {
    for (const auto& [name, change] : changes) {
      for (const std::string model :
           {"gated", "mlp_dropout", "gpt_tiny_tied"}) {
        const bool takes_long = model == "gpt_tiny_tied";
        if (takes_long && name != "plain" && name != "reproducible") continue;
        SCOPED_TRACE(absl::StrCat(layout.name, ", ", name, ", ", model));
        const auto train = [&, m = model](const LabChange& job_change) {
          LabJob job = m == "gated" ? GatedJob(4, job_change)
                                    : ModelJob(m, kBatch, 4, job_change);
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
  for (const LabLayout& layout : Layouts()) {
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
  for (const LabLayout& layout : Layouts()) {
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
    MeshStrategyOptions options = LabOptions(Layouts()[1], 6);
    options.grad_scaler.emplace();
    options.grad_scaler->growth_interval = 5 + world->rank();
    return MeshStrategy::Create(GatedSpecs(), CrossEntropy, options, world);
  };
  EXPECT_THAT(TrainInLab(Layouts()[1], job).status(), Says("grad_scaler"));
}

TEST(GradScalerStrategyTest, OptionsOutOfRangeAreNamed) {
  const auto refused = TrainInLab(Layouts()[0], GatedJob(1, [](auto& options) {
                                    options.grad_scaler.emplace();
                                    options.grad_scaler->backoff_factor = 1;
                                  }));
  EXPECT_THAT(refused.status(),
              Says("backoff_factor is 1: must be greater than 0"));
}

}  // namespace
}  // namespace tandem::grad_scaler_strategy_test
