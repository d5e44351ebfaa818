#include "parallel/optim/grad_scaler.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "core/base/status_macros.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::grad_scaler_test {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Weights, and an optimizer of learning rate 1 and momentum 0.9.
struct Model {
  Model() : buffers(MakeFlatBuffers({{"w", w}})) {
    optimizer = MakeOptimizer(SgdOptions{0.9}, buffers).value();
  }
  void Backward(const GradScaler& scaler, double gradient) {
    buffers[0]->ZeroGrad();
    scaler.Scale(w.mul(gradient).sum()).backward();
  }
  double value() const { return w[1].item<double>(); }

  at::Tensor w = at::ones({3}).requires_grad_();
  FlatBuffers buffers;
  std::unique_ptr<Optimizer> optimizer;
};

GradScaler MakeScaler(double init_scale = 65536, int64_t interval = 2000) {
  GradScalerOptions options;
  options.init_scale = init_scale;
  options.growth_interval = interval;
  return GradScaler::Create(options).value();
}

TEST(GradScalerTest, StepsAsWithoutIt) {
  GradScaler scaler = MakeScaler();
  GradScaler off = GradScaler::Create({65536, 2, 0.5, 2000, false}).value();
  Model scaled, plain;
  for (const double gradient : {0.3, -0.7, 1e-9}) {
    scaled.Backward(scaler, gradient);
    EXPECT_EQ(scaled.w.grad()[0].item<float>(),
              65536 * static_cast<float>(gradient));
    EXPECT_TRUE(*scaler.Step(*scaled.optimizer, 1));
    EXPECT_TRUE(scaler.Update().ok());
    plain.Backward(off, gradient);
    EXPECT_TRUE(*off.Step(*plain.optimizer, 1));
    EXPECT_TRUE(off.Update().ok());
    EXPECT_TRUE(scaled.w.equal(plain.w));
  }
}

TEST(GradScalerTest, SkipsWhatOverflowsAndBacksOff) {
  GradScaler scaler = MakeScaler(1024, 2);
  Model model, without;
  GradScaler its = MakeScaler(1024, 2);
  for (const double gradient : {0.3, kInfinity, 0.4, std::nan(""), 0.5, 0.6}) {
    const at::Tensor before = model.w.detach().clone();
    model.Backward(scaler, gradient);
    const bool steps = *scaler.Step(*model.optimizer, 1);
    EXPECT_EQ(steps, std::isfinite(gradient));
    ASSERT_TRUE(scaler.Update().ok());
    EXPECT_EQ(scaler.loss_scale().last_was_skipped(), !steps);
    if (!steps) {
      EXPECT_TRUE(model.w.equal(before));
      continue;
    }
    without.Backward(its, gradient);
    EXPECT_TRUE(*its.Step(*without.optimizer, 1));
    ASSERT_TRUE(its.Update().ok());
    EXPECT_TRUE(model.w.equal(without.w));
  }
  EXPECT_EQ(scaler.loss_scale().scale(), 1024 / 4 * 2);
  EXPECT_EQ(scaler.loss_scale().skipped_steps(), 2);
}

TEST(GradScalerTest, UnscalesBeforeClipping) {
  GradScaler scaler = MakeScaler();
  Model model;
  model.Backward(scaler, 4);
  ASSERT_TRUE(scaler.Unscale(*model.optimizer).ok());
  EXPECT_EQ(model.w.grad()[0].item<double>(), 4);
  EXPECT_FLOAT_EQ(ClipGradientNorm(model.buffers, 1), 4 * std::sqrt(3));
  EXPECT_TRUE(*scaler.Step(*model.optimizer, 1));
  EXPECT_TRUE(scaler.Update().ok());
  EXPECT_NEAR(model.value(), 1 - 1 / std::sqrt(3), 1e-6);
}

TEST(GradScalerTest, AddsUpSeveralBackwards) {
  GradScaler scaler = MakeScaler();
  Model model;
  model.Backward(scaler, 0.25);
  scaler.Scale(model.w.mul(0.5).sum()).backward();
  EXPECT_TRUE(*scaler.Step(*model.optimizer, 1));
  EXPECT_EQ(model.value(), 0.25);
}

// One scale, but a verdict for each.
TEST(GradScalerTest, TakesSeveralOptimizers) {
  GradScaler scaler = MakeScaler();
  Model good, bad;
  good.Backward(scaler, 1);
  bad.Backward(scaler, kInfinity);
  EXPECT_TRUE(*scaler.Step(*good.optimizer, 1));
  EXPECT_FALSE(*scaler.Step(*bad.optimizer, 1));
  EXPECT_TRUE(scaler.Update().ok());
  EXPECT_EQ(scaler.loss_scale().scale(), 32768);
  auto grouped = MakeGroupedOptimizer({SgdOptions()}, good.buffers);
  ASSERT_TRUE(grouped.ok());
  good.Backward(scaler, 2);
  EXPECT_TRUE(*scaler.Step(**grouped, 1));
  EXPECT_EQ(good.value(), 1 - 1 - 2);
}

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

TEST(GradScalerTest, RefusesWhatIsOutOfOrder) {
  GradScaler scaler = MakeScaler();
  Model model;
  EXPECT_THAT(Refusal(scaler.Update()), HasSubstr("Step comes first"));
  model.Backward(scaler, 1);
  ASSERT_TRUE(scaler.Unscale(*model.optimizer).ok());
  EXPECT_THAT(Refusal(scaler.Unscale(*model.optimizer)),
              HasSubstr("unscaled already"));
  ASSERT_TRUE(*scaler.Step(*model.optimizer, 1));
  EXPECT_THAT(Refusal(scaler.Step(*model.optimizer, 1).status()),
              HasSubstr("has stepped already"));
  EXPECT_THAT(Refusal(scaler.Unscale(*model.optimizer)),
              HasSubstr("unscaled already"));
  ASSERT_TRUE(scaler.Update().ok());
  model.Backward(scaler, 1);
  EXPECT_TRUE(*scaler.Step(*model.optimizer, 1));
  ASSERT_TRUE(scaler.Update().ok());
  model.Backward(scaler, 1);
  model.w.set_data(at::ones({3}));
  EXPECT_THAT(Refusal(scaler.Step(*model.optimizer, 1).status()),
              HasSubstr("parameter w was replaced"));
}

TEST(GradScalerTest, HasItsStateAndChecksItsOptions) {
  GradScaler scaler = MakeScaler(256, 7);
  GradScaler other = MakeScaler();
  ASSERT_TRUE(other.LoadState(scaler.State()).ok());
  EXPECT_EQ(other.State(), scaler.State());
  GradScalerOptions options;
  options.growth_factor = 0.5;
  EXPECT_THAT(GradScaler::Create(options).status(),
              Says("growth_factor is 0.5"));
}

class GradScalerRanksTest : public DdpTest {
 protected:
  // One step on one rank's gradients; whether it was taken.
  static absl::StatusOr<bool> StepOn(Twins<TwoLinear>& twins,
                                     GradScaler& scaler, Optimizer& optimizer,
                                     const at::Tensor& input) {
    twins.ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                            twins.ddp->Forward(input, true, true));
    TANDEM_RETURN_IF_ERROR(
        twins.ddp->Backward([&] { return scaler.Scale(output.sum()); }));
    TANDEM_ASSIGN_OR_RETURN(const bool steps, scaler.Step(optimizer, 0.1));
    TANDEM_RETURN_IF_ERROR(scaler.Update());
    return steps;
  }
};

// With and without averaging: under no_sync nobody else has the gradient that
// is not finite.
TEST_P(GradScalerRanksTest, OneRanksOverflowIsEverybodys) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    for (const bool averages : {true, false}) {
      for (int culprit = 0; culprit < world.size(); ++culprit) {
        TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
        TANDEM_ASSIGN_OR_RETURN(GradScaler scaler,
                                GradScaler::Create({}, &world));
        TANDEM_ASSIGN_OR_RETURN(
            const auto optimizer,
            MakeOptimizer(AdamOptions(), twins.ddp->flat_buffers()));
        const auto step = [&](int number, bool bad) {
          at::Tensor input = ExampleInput(number, world);
          if (bad && world.rank() == culprit) input = input * kInfinity;
          if (averages) return StepOn(twins, scaler, *optimizer, input);
          const NoSyncGuard guard = twins.ddp->no_sync();
          return StepOn(twins, scaler, *optimizer, input);
        };
        TANDEM_ASSIGN_OR_RETURN(const bool first, step(0, false));
        EXPECT_TRUE(first);
        const at::Tensor before = twins.module->a->weight.detach().clone();
        TANDEM_ASSIGN_OR_RETURN(const bool second, step(1, true));
        EXPECT_FALSE(second);
        EXPECT_TRUE(twins.module->a->weight.equal(before));
        EXPECT_EQ(scaler.loss_scale().scale(), 32768);
        TANDEM_ASSIGN_OR_RETURN(const bool third, step(2, false));
        EXPECT_TRUE(third);
        EXPECT_FALSE(twins.module->a->weight.equal(before));
      }
    }
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(GradScalerRanksTest);

}  // namespace
}  // namespace tandem::grad_scaler_test
