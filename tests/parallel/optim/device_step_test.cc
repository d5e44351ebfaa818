// Steps that a device decides on, with the host's kernels in the GPU's place.

#include "parallel/optim/device_step.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/host_step_kernels.h"
#include "core/cuda/step_kernels_of.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/grad_scaler.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/parameter_update.h"

namespace tandem::device_step_test {
namespace {

using ::testing::HasSubstr;

// Roundings of some steps of 0.1, of which each is some units of 2^-24.
constexpr double kTolerance = 5e-6;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// While it lives the CPU's kernels stand in for a GPU's.
struct HostKernels {
  HostKernels() { RegisterStepKernels(c10::kCPU, &HostStepKernels()); }
  ~HostKernels() { RegisterStepKernels(c10::kCPU, nullptr); }
};

// Three parameters, of which the middle one may have no gradient.
struct Model {
  Model() : buffers(MakeFlatBuffers({{"a", a}, {"b", b}, {"c", c}})) {}

  void SetGradients(int step, bool with_b, double bad = 0) {
    at::manual_seed(step);
    buffers[0]->ZeroGrad();
    for (size_t i = 0; i < 3; ++i) {
      const FlatSlot& slot = buffers[0]->slots()[i];
      const at::Tensor gradient = at::randn({slot.numel}).mul_(3);
      if (bad != 0) gradient[0].fill_(bad);
      buffers[0]->grads().narrow(0, slot.offset, slot.numel).copy_(gradient);
      buffers[0]->set_has_gradient(i, with_b || slot.name != "b");
    }
  }

  at::Tensor a = at::ones({37}).requires_grad_();
  at::Tensor b = at::ones({5}).requires_grad_();
  at::Tensor c = at::ones({64}).requires_grad_();
  FlatBuffers buffers;
};

std::string Refusal(const FlatBuffers& buffers, bool has_kernels = true) {
  return std::string(
      DeviceStepKernels(buffers, has_kernels).status().message());
}

TEST(DeviceStepKernels, SaysWhyThereAreNone) {
  const Model model;
  EXPECT_THAT(Refusal(model.buffers), HasSubstr("no step kernels for cpu"));
  const HostKernels there;
  EXPECT_EQ(*DeviceStepKernels(model.buffers, true), &HostStepKernels());
  EXPECT_THAT(Refusal(model.buffers, false), HasSubstr("with these options"));
  EXPECT_THAT(Refusal({}), HasSubstr("no parameters"));
  const at::Tensor w = at::ones({3}, at::kDouble).requires_grad_();
  EXPECT_THAT(Refusal(MakeFlatBuffers({{"w", w}})),
              HasSubstr("float32, and w is Double"));
}

TEST(GradientFactorOf, LeavesOutWhatHasNoGradient) {
  Model model;
  model.buffers[0]->grads().fill_(1);
  for (size_t i = 0; i < 3; ++i) {
    const FlatSlot& slot = model.buffers[0]->slots()[i];
    // Padding is zero, and what has no gradient is anything.
    model.buffers[0]
        ->grads()
        .narrow(0, slot.offset + slot.numel,
                slot.end - slot.offset - slot.numel)
        .zero_();
    model.buffers[0]->set_has_gradient(i, slot.name != "b");
  }
  const auto factor = GradientFactorOf(model.buffers, HostStepKernels(), {});
  EXPECT_FLOAT_EQ(ReadFactor(factor).norm, std::sqrt(37.0F + 64.0F));
  model.buffers[0]->ZeroGrad();
  EXPECT_FALSE(
      GradientFactorOf(model.buffers, HostStepKernels(), {}).defined());
}

UpdateOptions Clipped(const OptimizerOptions& optimizer) {
  UpdateOptions options;
  options.optimizer = optimizer;
  options.clip_norm = 1;
  return options;
}

const std::vector<OptimizerOptions>& Optimizers() {
  static const auto* const all = new std::vector<OptimizerOptions>{
      SgdOptions{}, SgdOptions{0.9, 0.1, 0.01, false},
      SgdOptions{0.9, 0, 0.01, true}, AdamOptions{0.9, 0.999, 1e-3, 0.01},
      AdamWOptions{0.9, 0.999, 1e-3}};
  return *all;
}

double NormOf(const Model& model, bool with_b) {
  double sum = 0;
  for (const FlatSlot& slot : model.buffers[0]->slots()) {
    if (!with_b && slot.name == "b") continue;
    const at::Tensor grads =
        model.buffers[0]->grads().narrow(0, slot.offset, slot.numel);
    sum += grads.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(sum);
}

// 1 less 0.99999 as float has it is off by 1.4e-3, the same way in each step.
TEST(ParameterUpdateOnDevice, WhatBetasLeaveIsTheHosts) {
  UpdateOptions options;
  options.optimizer = AdamOptions{0.9, 0.99999, 1e-8};
  options.clip_norm = 1e6;  // what a device decides on
  Model ours, hosts;
  auto on_host = ParameterUpdate::Create(options, hosts.buffers);
  ASSERT_TRUE(on_host.ok()) << on_host.status();
  const HostKernels there;
  auto on_device = ParameterUpdate::Create(options, ours.buffers);
  ASSERT_TRUE(on_device->clips_on_device());
  for (int step = 0; step < 50; ++step) {
    ours.SetGradients(step, true);
    hosts.SetGradients(step, true);
    const double norm = NormOf(hosts, true);
    ASSERT_TRUE(on_device->Step(0.1, std::nullopt).ok());
    ASSERT_TRUE(on_host->Step(0.1, GradientNorms{norm, norm}).ok());
  }
  const at::Tensor moved = hosts.a.sub(1).abs().mean();
  EXPECT_LT(ours.a.sub(hosts.a).abs().mean().div(moved).item<double>(), 1e-4);
}

TEST(ParameterUpdateOnDevice, ClipsAndStepsAsTheHostDoes) {
  for (const OptimizerOptions& optimizer : Optimizers()) {
    Model ours, hosts;
    auto on_host = ParameterUpdate::Create(Clipped(optimizer), hosts.buffers);
    ASSERT_TRUE(on_host.ok()) << on_host.status();
    EXPECT_FALSE(on_host->clips_on_device());
    const HostKernels there;
    auto on_device = ParameterUpdate::Create(Clipped(optimizer), ours.buffers);
    ASSERT_TRUE(on_device->clips_on_device());
    for (int step = 0; step < 5; ++step) {
      const bool with_b = step % 2 == 1;  // so its steps are others'
      ours.SetGradients(step, with_b);
      hosts.SetGradients(step, with_b);
      const double norm = NormOf(hosts, with_b);
      ASSERT_TRUE(on_device->Step(0.1, std::nullopt).ok());
      ASSERT_TRUE(on_host->Step(0.1, GradientNorms{norm, norm}).ok());
      for (const auto& [mine, its] :
           {std::pair(ours.a, hosts.a), {ours.b, hosts.b}, {ours.c, hosts.c}}) {
        EXPECT_TRUE(mine.allclose(its, kTolerance, kTolerance)) << step;
      }
    }
    EXPECT_FALSE(ours.a.allclose(at::ones({37}), 0.01, 0.01));
  }
}

TEST(ParameterUpdateOnDevice, ANormThatIsNotFiniteIsNoReasonToSkip) {
  const HostKernels there;
  for (const double bad : {kInfinity, std::nan("")}) {
    Model model;
    auto update = ParameterUpdate::Create(Clipped(SgdOptions()), model.buffers);
    model.SetGradients(1, true, bad);
    ASSERT_TRUE(update->Step(0.1, std::nullopt).ok());
    EXPECT_TRUE(std::isnan(model.a[0].item<double>()));
    EXPECT_EQ(std::isnan(model.a[1].item<double>()), std::isnan(bad));
  }
}

TEST(ParameterUpdateOnDevice, IsTheHostsWhereTheDeviceCannot) {
  const HostKernels there;
  const Model model;
  const auto on_device = [&](UpdateOptions options,
                             const ShareOfBuffer& share = nullptr) {
    return ParameterUpdate::Create(options, model.buffers, share)
        ->clips_on_device();
  };
  const UpdateOptions clipped = Clipped(SgdOptions());
  EXPECT_TRUE(on_device(clipped));
  EXPECT_FALSE(on_device({}));
  UpdateOptions other = clipped;
  other.clip_norm_type = 1;
  EXPECT_FALSE(on_device(other));
  other = clipped;
  other.error_if_nonfinite = true;
  EXPECT_FALSE(on_device(other));
  AdamOptions amsgrad;
  amsgrad.amsgrad = true;
  EXPECT_FALSE(on_device(Clipped(amsgrad)));
  EXPECT_FALSE(on_device(clipped, [](const FlatBuffer&) {
    return OptimizerShare{0, 2};
  }));
}

struct Scaled {
  explicit Scaled(const OptimizerOptions& options)
      : optimizer(MakeOptimizer(options, model.buffers).value()),
        scaler(GradScaler::Create({/*init_scale=*/4}).value()) {}

  bool Step(int step, double bad) {
    model.SetGradients(step, true, bad);
    const bool stepped = *scaler.Step(*optimizer, 0.1);
    EXPECT_TRUE(scaler.Update().ok());
    return stepped;
  }

  Model model;
  std::unique_ptr<Optimizer> optimizer;
  GradScaler scaler;
};

// Adam counts steps: what was skipped is none.
TEST(GradScalerOnDevice, StepsAndSkipsAsTheHostDoes) {
  for (const OptimizerOptions& options : Optimizers()) {
    Scaled ours(options), hosts(options);
    int skipped = 0;
    for (int step = 0; step < 6; ++step) {
      const double bad = step == 0 || step == 3 ? kInfinity : 0;
      const bool expected = hosts.Step(step, bad);
      const HostKernels there;
      EXPECT_EQ(ours.Step(step, bad), expected);
      skipped += expected ? 0 : 1;
      EXPECT_TRUE(ours.model.a.allclose(hosts.model.a, kTolerance, kTolerance))
          << step;
      EXPECT_EQ(ours.scaler.State(), hosts.scaler.State());
    }
    EXPECT_EQ(skipped, 2);
    for (size_t i = 0; i < hosts.optimizer->State().size(); ++i) {
      EXPECT_TRUE(ours.optimizer->State()[i].second.allclose(
          hosts.optimizer->State()[i].second, kTolerance, kTolerance));
    }
  }
}

TEST(GradScalerOnDevice, WhatWasUnscaledIsTheHosts) {
  const HostKernels there;
  Scaled ours(SgdOptions{});
  ours.model.SetGradients(1, true);
  const float before = ours.model.buffers[0]->grads()[0].item<float>();
  ASSERT_TRUE(ours.scaler.Unscale(*ours.optimizer).ok());
  EXPECT_EQ(ours.model.buffers[0]->grads()[0].item<float>(), before / 4);
  ASSERT_TRUE(*ours.scaler.Step(*ours.optimizer, 1));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ours.scaler.Step(*ours.optimizer, 1).status()));
  EXPECT_NEAR(ours.model.buffers[0]->values()[0].item<float>(), 1 - before / 4,
              1e-6);
}

}  // namespace
}  // namespace tandem::device_step_test
