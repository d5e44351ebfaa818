// Clipping by norms that stay on their device, with the CPU in the GPU's place.

#include "parallel/optim/device_clipping.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/parameter_update.h"

namespace tandem::device_clipping_test {
namespace {

// Roundings of some steps of 0.1, of which each is some units of 2^-24.
constexpr double kTolerance = 5e-6;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

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

TEST(NormStaysOnDevice, OfFloat32OnOneDeviceThatIsAskedFor) {
  const Model model;
  EXPECT_FALSE(NormStaysOnDevice(model.buffers));
  const NormsStayOnDevices there;
  EXPECT_TRUE(NormStaysOnDevice(model.buffers));
  EXPECT_FALSE(NormStaysOnDevice({}));
  const at::Tensor w = at::ones({3}, at::kDouble).requires_grad_();
  const FlatBuffers doubles = MakeFlatBuffers({{"w", w}});
  EXPECT_FALSE(NormStaysOnDevice(doubles));
}

float DivisorFor(const Model& model, double max_norm) {
  return ClippingDivisorOnDevice(model.buffers, max_norm).item<float>();
}

TEST(ClippingDivisorOnDevice, LeavesOutWhatHasNoGradient) {
  const NormsStayOnDevices counted;
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
  EXPECT_FLOAT_EQ(DivisorFor(model, 2), std::sqrt(37.0F + 64.0F) / 2);
  EXPECT_EQ(DivisorFor(model, 11), 1);
  EXPECT_EQ(counted.divisors(), 2);
  model.buffers[0]->ZeroGrad();
  EXPECT_FALSE(ClippingDivisorOnDevice(model.buffers, 2).defined());
}

TEST(ClippingDivisorOnDevice, IsNotFiniteWhereTheNormIsNot) {
  Model model;
  model.SetGradients(1, true, kInfinity);
  EXPECT_EQ(DivisorFor(model, 1), kInfinity);
  model.SetGradients(1, true, std::nan(""));
  EXPECT_TRUE(std::isnan(DivisorFor(model, 1)));
}

UpdateOptions Clipped(const OptimizerOptions& optimizer) {
  UpdateOptions options;
  options.optimizer = optimizer;
  options.clip_norm = 1;
  return options;
}

const std::vector<OptimizerOptions>& Optimizers() {
  static const auto* const all = new std::vector<OptimizerOptions>{
      SgdOptions{},
      SgdOptions{0.9, 0.1, 0.01, false},
      SgdOptions{0.9, 0, 0.01, true},
      AdamOptions{0.9, 0.999, 1e-3, 0.01},
      AdamOptions{0.9, 0.999, 1e-3, 0.01, true},
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

TEST(ParameterUpdateOnDevice, ClipsAndStepsAsTheHostDoes) {
  for (const OptimizerOptions& optimizer : Optimizers()) {
    Model ours, hosts;
    auto on_host = ParameterUpdate::Create(Clipped(optimizer), hosts.buffers);
    ASSERT_TRUE(on_host.ok()) << on_host.status();
    EXPECT_FALSE(on_host->clips_on_device());
    const NormsStayOnDevices there;
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
  const NormsStayOnDevices there;
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
  const NormsStayOnDevices there;
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
  EXPECT_FALSE(on_device(clipped, [](const FlatBuffer&) {
    return OptimizerShare{0, 2};
  }));
}

}  // namespace
}  // namespace tandem::device_clipping_test
