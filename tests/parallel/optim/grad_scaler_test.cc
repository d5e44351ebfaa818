#include "parallel/optim/grad_scaler.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/optimizer.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::grad_scaler_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Weights, and an optimizer of learning rate 1 and momentum 0.9.
struct ScaledModel {
  ScaledModel() : buffers(MakeFlatBuffers({{"w", w}})) {
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
  ScaledModel scaled, plain;
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
  ScaledModel model, without;
  GradScaler expected_scaler = MakeScaler(1024, 2);
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
    without.Backward(expected_scaler, gradient);
    EXPECT_TRUE(*expected_scaler.Step(*without.optimizer, 1));
    ASSERT_TRUE(expected_scaler.Update().ok());
    EXPECT_TRUE(model.w.equal(without.w));
  }
  EXPECT_EQ(scaler.loss_scale().scale(), 1024 / 4 * 2);
  EXPECT_EQ(scaler.loss_scale().skipped_steps(), 2);
}

TEST(GradScalerTest, UnscalesBeforeClipping) {
  GradScaler scaler = MakeScaler();
  ScaledModel model;
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
  ScaledModel model;
  model.Backward(scaler, 0.25);
  scaler.Scale(model.w.mul(0.5).sum()).backward();
  EXPECT_TRUE(*scaler.Step(*model.optimizer, 1));
  EXPECT_EQ(model.value(), 0.25);
}

// One scale, but a verdict for each.
TEST(GradScalerTest, TakesSeveralOptimizers) {
  GradScaler scaler = MakeScaler();
  ScaledModel good, bad;
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

TEST(GradScalerTest, RefusesWhatIsOutOfOrder) {
  const auto refuses = [](const char* says) {
    return StatusIs(absl::StatusCode::kFailedPrecondition, says);
  };
  GradScaler scaler = MakeScaler();
  ScaledModel model;
  EXPECT_THAT(scaler.Update(), refuses("Step comes first"));
  model.Backward(scaler, 1);
  ASSERT_TRUE(scaler.Unscale(*model.optimizer).ok());
  EXPECT_THAT(scaler.Unscale(*model.optimizer), refuses("unscaled already"));
  ASSERT_TRUE(*scaler.Step(*model.optimizer, 1));
  EXPECT_THAT(scaler.Step(*model.optimizer, 1).status(),
              refuses("has stepped already"));
  EXPECT_THAT(scaler.Unscale(*model.optimizer), refuses("unscaled already"));
  ASSERT_TRUE(scaler.Update().ok());
  model.Backward(scaler, 1);
  EXPECT_TRUE(*scaler.Step(*model.optimizer, 1));
  ASSERT_TRUE(scaler.Update().ok());
  model.Backward(scaler, 1);
  model.w.set_data(at::ones({3}));
  EXPECT_THAT(scaler.Step(*model.optimizer, 1).status(),
              refuses("parameter w was replaced"));
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

// Optimizer::StepUnless: what a device leaves out was no step, though the host
// does not hear of it until it asks.

// Whether a step is left out, and whether parameters "a" and "b" have
// gradients.
struct Step {
  bool skipped = false;
  bool a = true;
  bool b = true;
};

class SteppedModel {
 public:
  explicit SteppedModel(const OptimizerOptions& options) {
    for (const char* name : {"a", "b"}) {
      parameters_.emplace_back(name, at::randn({5, 2}, GeneratorFor(1, name))
                                         .to(TestDevice())
                                         .requires_grad_());
    }
    buffers_ = MakeFlatBuffers(parameters_);
    optimizer_ = *MakeOptimizer(options, FlatBufferList(buffers_));
  }

  void Backward(int number, const Step& step) {
    for (const auto& buffer : buffers_) buffer->ZeroGrad();
    for (size_t i = 0; i < 2; ++i) {
      if (i == 0 ? !step.a : !step.b) continue;
      const at::Tensor weights =
          at::full({5, 2}, 0.3 * (number + 1), TestDevice());
      parameters_[i].second.square().mul(weights).sum().backward();
    }
  }

  Optimizer& optimizer() { return *optimizer_; }
  NamedTensors All() const {
    NamedTensors all = optimizer_->State();
    all.insert(all.end(), parameters_.begin(), parameters_.end());
    return all;
  }

 private:
  NamedTensors parameters_;
  FlatBuffers buffers_;
  std::unique_ptr<Optimizer> optimizer_;
};

std::vector<OptimizerOptions> Optimizers() {
  SgdOptions damped{0.9};
  damped.dampening = 0.5;
  AdamOptions greatest;
  greatest.amsgrad = true;
  return {SgdOptions(), SgdOptions{0.9}, damped,       AdamOptions(),
          greatest,     AdamWOptions(),  MuonOptions()};
}

at::Tensor FourOnDevice(const FlatBuffer& /*buffer*/) {
  return at::full({}, 4, at::TensorOptions(TestDevice()).dtype(at::kFloat));
}

class StepUnlessTest : public DeviceTypeTest {};

TEST_P(StepUnlessTest, HasTheBitsOfStepsThatTheHostLeavesOut) {
  const std::vector<std::vector<Step>> jobs = {
      {{}, {true}, {}, {true}, {true}, {}},
      {{true}, {true}, {}, {}},                // a late first step
      {{}, {false, true, false}, {true}, {}},  // other parameters
      {{true, true, false}, {false, false, true}, {}, {true}, {}}};
  for (size_t i = 0; i < Optimizers().size(); ++i) {
    for (size_t j = 0; j < jobs.size(); ++j) {
      SCOPED_TRACE(std::to_string(i) + ", job " + std::to_string(j));
      SteppedModel found(Optimizers()[i]), expected(Optimizers()[i]);
      for (size_t number = 0; number < jobs[j].size(); ++number) {
        const Step& step = jobs[j][number];
        const double rate = 0.1 / static_cast<double>(number + 1);
        found.Backward(static_cast<int>(number), step);
        found.optimizer().StepUnless(
            at::full({}, step.skipped ? 1.0f : 0.0f,
                     at::TensorOptions(TestDevice()).dtype(at::kFloat)),
            rate);
        if (step.skipped) continue;
        expected.Backward(static_cast<int>(number), step);
        expected.optimizer().Step(rate);
      }
      const NamedTensors found_tensors = found.All(),
                         expected_tensors = expected.All();
      ASSERT_EQ(found_tensors.size(), expected_tensors.size());
      for (size_t k = 0; k < found_tensors.size(); ++k) {
        EXPECT_EQ(found_tensors[k].first, expected_tensors[k].first);
        EXPECT_TRUE(found_tensors[k].second.equal(expected_tensors[k].second))
            << found_tensors[k].first;
      }
    }
  }
}

TEST_P(StepUnlessTest, DividesGradients) {
  SteppedModel found(SgdOptions{0.9}), expected(SgdOptions{0.9});
  const at::TensorOptions options =
      at::TensorOptions(TestDevice()).dtype(at::kFloat);
  found.Backward(0, {});
  found.optimizer().StepUnless(at::full({}, 0, options), 0.1, FourOnDevice);
  expected.Backward(0, {});
  expected.optimizer().Step(0.1, [](const FlatBuffer&) { return 4.0; });
  for (size_t k = 0; k < found.All().size(); ++k) {
    EXPECT_TRUE(found.All()[k].second.equal(expected.All()[k].second)) << k;
  }
}

TEST_P(StepUnlessTest, DividesAsStepDoes) {
  SteppedModel found(AdamOptions{}), expected(AdamOptions{});
  const at::TensorOptions options =
      at::TensorOptions(TestDevice()).dtype(at::kFloat);
  found.Backward(0, {});
  found.optimizer().Step(0.1, FourOnDevice);
  expected.Backward(0, {});
  expected.optimizer().StepUnless(at::full({}, 0, options), 0.1, FourOnDevice);
  for (size_t k = 0; k < found.All().size(); ++k) {
    EXPECT_TRUE(found.All()[k].second.equal(expected.All()[k].second)) << k;
  }
}

TANDEM_ON_DEVICE_TYPES(StepUnlessTest);

}  // namespace
}  // namespace tandem::grad_scaler_test
