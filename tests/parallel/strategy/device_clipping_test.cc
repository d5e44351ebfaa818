// Clipping by norms that stay on their device, within strategies: the CPU and
// simulated devices stand in for a GPU.

#include <ATen/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/sim/streams/streams.h"
#include "core/sim/testing.h"
#include "parallel/optim/parameter_update.h"
#include "parallel/step/step_score.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::Lt;

constexpr int kSteps = 3;
constexpr double kClip = 0.05;

class DeviceClippingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { SimDevices(1); }  // before any backward
};

LabJob Job(const std::string& model, const LabChange& change = nullptr) {
  return ModelJob(model, /*size=*/12, kSteps, [change](auto& options) {
    options.clip_norm = kClip;
    if (change) change(options);
  });
}

LabLayout LayoutOf(int ranks, int stages = 1) {
  LabLayout layout = {"", stages == 1 ? "gpipe" : "1f1b", ranks, 1, stages};
  layout.microbatches = 2;
  return layout;
}

TEST_F(DeviceClippingTest, TrainsAsTheHostDoesOnOneRankAndOnReplicas) {
  for (const std::string model : {"mlp_small", "gpt_tiny_tied"}) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(model, " ", ranks));
      const auto expected = TrainInLab(LayoutOf(ranks), Job(model));
      ASSERT_TRUE(expected.ok()) << expected.status();
      const NormsStayOnDevices counted;
      const auto found = TrainInLab(LayoutOf(ranks), Job(model));
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(counted.divisors(), kSteps * ranks);
      for (const auto& [name, value] : expected->model) {
        EXPECT_TRUE(found->model.at(name).allclose(value, 1e-5, 1e-6)) << name;
      }
    }
  }
}

// By step.
std::vector<double> NormsOf(const LabLayout& layout, const LabChange& change) {
  std::vector<double> norms;
  LabJob job = Job("mlp_small", change);
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int) -> absl::StatusOr<Score> {
    rank.strategy->MeasureGradientNorm();
    TANDEM_RETURN_IF_ERROR(rank.strategy->SubmitStep(batch, kLabRate));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<StepScore> scores,
                            rank.strategy->TakeScores());
    norms.push_back(scores.back().gradient_norm.value_or(-1));
    return scores.back().score;
  };
  const auto trained = TrainInLab(layout, job);
  EXPECT_TRUE(trained.ok()) << trained.status();
  return norms;
}

// After clipping by value and before that by norm, whoever decides on a step.
TEST_F(DeviceClippingTest, MeasuresTheNormThatTheHostMeasures) {
  const auto measured = [] {
    return NormsOf(LayoutOf(1), [](auto& options) {
      options.clip_value = 1.0 / 1024;
      options.grad_scaler = GradScalerOptions();
    });
  };
  const std::vector<double> expected = measured();
  const NormsStayOnDevices counted;
  const std::vector<double> found = measured();
  EXPECT_EQ(counted.divisors(), kSteps);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-4 * expected[i]) << i;
  }
}

// The device writes back what it has clipped, in fp16 unless it skips.
TEST_F(DeviceClippingTest, TheNormIsThatBeforeClipping) {
  LabLayout layout = LayoutOf(1);
  layout.device_pool = SimDevices(1);
  const NormsStayOnDevices there;
  for (const bool halves : {false, true}) {
    SCOPED_TRACE(halves);
    const auto norms = [&](double clip_norm, double clip_value) {
      return NormsOf(layout, [=](auto& options) {
        options.clip_norm = clip_norm;
        options.clip_value = clip_value;
        if (!halves) return;
        options.ddp.mixed_precision.param_dtype = at::kHalf;
        options.optimizer = AdamWOptions();
        options.grad_scaler.emplace();
        options.grad_scaler->init_scale = 1024;
      });
    };
    const std::vector<double> found = norms(kClip, 0);
    EXPECT_EQ(found.front(), norms(0, 0).front());
    EXPECT_THAT(found, Each(Gt(2 * kClip)));
    EXPECT_THAT(norms(kClip, 1e-5), Each(AllOf(Gt(0), Lt(kClip))));
  }
}

int64_t DivisorsIn(const LabLayout& layout, const LabJob& job) {
  const NormsStayOnDevices counted;
  const auto done = TrainInLab(layout, job);
  EXPECT_TRUE(done.ok()) << done.status();
  return counted.divisors();
}

// The waits of kSteps steps, after as many.
absl::StatusOr<sim::HostWaits> WaitsOf(const std::string& model) {
  LabLayout layout = LayoutOf(1);
  layout.device_pool = SimDevices(1);
  const LabJob job =
      Job(model, [](auto& options) { options.optimizer = AdamOptions(); });
  sim::HostWaits waits;
  TANDEM_RETURN_IF_ERROR(
      OnLabRanks(layout, job, [&](const LabRank& rank) -> absl::Status {
        sim::HostWaits before;
        for (int step = 0; step < 2 * kSteps; ++step) {
          if (step == kSteps) before = sim::CountedHostWaits();
          Batch batch = LabBatch(model, 12, kLabSeed, step);
          batch.inputs = batch.inputs.pin_memory();
          batch.targets = batch.targets.pin_memory();
          TANDEM_RETURN_IF_ERROR(rank.strategy->SubmitStep(batch, 0.1));
        }
        waits = sim::HostWaitsSince(before);
        return rank.strategy->TakeScores().status();
      }));
  return waits;
}

// On a simulated device, which counts as a GPU would have it.
TEST_F(DeviceClippingTest, TheHostDoesNotWaitForTheNorm) {
  for (const char* model : {"mlp_small", "gpt_tiny"}) {
    const NormsStayOnDevices counted;
    const auto waits = WaitsOf(model);
    ASSERT_TRUE(waits.ok()) << waits.status();
    EXPECT_THAT(*waits, testing::IsEmpty()) << model;
    EXPECT_EQ(counted.divisors(), 2 * kSteps);
  }
}

TEST_F(DeviceClippingTest, TheHostDecidesWhereNoDeviceHasTheWholeNorm) {
  EXPECT_EQ(DivisorsIn(LayoutOf(1, /*stages=*/2), Job("mlp_small")), 0);
  EXPECT_EQ(DivisorsIn(LayoutOf(1),
                       Job("mlp_small",
                           [](auto& options) { options.reproducible = true; })),
            0);
  EXPECT_EQ(DivisorsIn(LayoutOf(1), Job("mlp_small",
                                        [](auto& options) {
                                          options.error_if_nonfinite = true;
                                        })),
            0);
  EXPECT_EQ(DivisorsIn(LayoutOf(2), Job("mlp_small",
                                        [](auto& options) {
                                          options.shard = Sharding::kOptimizer;
                                        })),
            0);
  EXPECT_EQ(DivisorsIn(LayoutOf(1), Job("mlp_small")), kSteps);
}

}  // namespace
}  // namespace tandem
