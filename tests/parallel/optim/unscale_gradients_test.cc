#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/device_types.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/grad_scaler.h"
#include "parallel/optim/parameter_update.h"

namespace tandem::unscale_gradients_test {
namespace {

// None, one, primes, and more than a vector.
const std::vector<int64_t> kSizes = {7, 0, 1, 13, 97, 2, 64, 1009};

// Parameters of these sizes, of two dtypes, with gradients but for some.
class UnscaledModel {
 public:
  explicit UnscaledModel(const std::vector<size_t>& without) {
    NamedTensors parameters;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      const auto dtype = i % 3 == 2 ? at::kDouble : at::kFloat;
      all_.push_back(
          at::randn({kSizes[i]}, dtype).to(TestDevice()).requires_grad_());
      parameters.emplace_back(absl::StrCat("p", i), all_.back());
    }
    buffers_ = MakeFlatBuffers(parameters);
    for (size_t i = 0; i < all_.size(); ++i) {
      if (std::count(without.begin(), without.end(), i) > 0) continue;
      all_[i].mul(at::randn_like(all_[i])).sum().backward();
    }
  }

  const std::vector<at::Tensor>& all() const { return all_; }
  const FlatBuffers& buffers() const { return buffers_; }
  std::vector<at::Tensor> Gradients() const {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& each : all_) {
      if (each.grad().defined()) gradients.push_back(each.grad().cpu().clone());
    }
    return gradients;
  }

 private:
  std::vector<at::Tensor> all_;
  FlatBuffers buffers_;
};

class UnscaleGradientsTest : public DeviceTypeTest {};

TEST_P(UnscaleGradientsTest, IsLibTorchs) {
  for (const auto& without : std::vector<std::vector<size_t>>{
           {}, {0}, {3}, {1, 2, 4}, {7}, {0, 1, 2, 3, 4, 5, 6, 7}}) {
    const UnscaledModel model(without);
    std::vector<at::Tensor> expected = model.Gradients();
    at::Tensor found = at::zeros({}, at::kFloat);
    for (at::Tensor& each : expected) {
      at::_amp_foreach_non_finite_check_and_unscale_(
          each, found, at::full({}, 0.3F, at::kFloat));
    }
    EXPECT_FALSE(UnscaleGradients(model.buffers(), 0.3F));
    const std::vector<at::Tensor> gradients = model.Gradients();
    ASSERT_EQ(gradients.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(gradients[i].equal(expected[i])) << i;
    }
  }
}

TEST_P(UnscaleGradientsTest, FindsWhatIsNotFiniteInAnyParameter) {
  for (size_t i = 0; i < kSizes.size(); ++i) {
    if (kSizes[i] == 0) continue;
    for (const double bad : {std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
      const UnscaledModel model({});
      model.all()[i].grad()[kSizes[i] - 1] = bad;
      EXPECT_TRUE(UnscaleGradients(model.buffers(), 0.5F)) << i;
      EXPECT_TRUE(UnscaleGradients(model.buffers(), 0.5F)) << i;
    }
  }
}

// Whatever lies at the place of a parameter without a gradient.
TEST_P(UnscaleGradientsTest, LooksAtGradientsAlone) {
  const UnscaledModel model({3});
  for (const auto& buffer : model.buffers()) {
    for (const FlatSlot& slot : buffer->slots()) {
      if (slot.parameter.grad().defined()) continue;
      buffer->View(buffer->grads(), slot)
          .fill_(std::numeric_limits<double>::infinity());
    }
  }
  EXPECT_FALSE(UnscaleGradients(model.buffers(), 0.5F));
  EXPECT_FALSE(UnscaleGradients(FlatBufferList(), 0.5F));
}

// Averages, which three replicas have in common, are seen by one of them each;
// what is a replica's own is seen by all.
TEST_P(UnscaleGradientsTest, ReplicasLookAtAShareEach) {
  constexpr int kReplicas = 3;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    if (kSizes[i] == 0) continue;
    for (const bool is_shared : {true, false}) {
      const UnscaledModel model({});
      model.all()[i].grad()[kSizes[i] / 2] =
          std::numeric_limits<double>::infinity();
      const std::vector<at::Tensor> before = model.Gradients();
      int finders = 0;
      for (int replica = 0; replica < kReplicas; ++replica) {
        const at::Tensor found =
            at::zeros({}, at::TensorOptions(TestDevice()).dtype(at::kFloat));
        const OptimizerShare share =
            is_shared ? OptimizerShare{replica, kReplicas} : OptimizerShare();
        FindNonFinite(
            model.buffers(), [&](const FlatBuffer&) { return share; }, found);
        finders += found.item<float>() == 1 ? 1 : 0;
      }
      EXPECT_EQ(finders, is_shared ? 1 : kReplicas) << i;
      const std::vector<at::Tensor> after = model.Gradients();
      for (size_t j = 0; j < before.size(); ++j) {
        EXPECT_TRUE(after[j].equal(before[j])) << j;
      }
    }
  }
}

TANDEM_ON_DEVICE_TYPES(UnscaleGradientsTest);

// Clipping by norms that stay on their device, with the CPU in the GPU's place.

// Roundings of some steps of 0.1, of which each is some units of 2^-24.
constexpr double kTolerance = 5e-6;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Three parameters, of which the middle one may have no gradient.
struct ClippedModel {
  ClippedModel() : buffers(MakeFlatBuffers({{"a", a}, {"b", b}, {"c", c}})) {}

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
  const ClippedModel model;
  EXPECT_FALSE(NormStaysOnDevice(model.buffers));
  const NormsStayOnDevices there;
  EXPECT_TRUE(NormStaysOnDevice(model.buffers));
  EXPECT_FALSE(NormStaysOnDevice({}));
  const at::Tensor w = at::ones({3}, at::kDouble).requires_grad_();
  const FlatBuffers doubles = MakeFlatBuffers({{"w", w}});
  EXPECT_FALSE(NormStaysOnDevice(doubles));
}

float DivisorFor(const ClippedModel& model, double max_norm) {
  return ClippingDivisorOnDevice(model.buffers, max_norm).item<float>();
}

TEST(ClippingDivisorOnDevice, LeavesOutWhatHasNoGradient) {
  const NormsStayOnDevices counted;
  ClippedModel model;
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
  ClippedModel model;
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

double NormOf(const ClippedModel& model, bool with_b) {
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
    ClippedModel ours, hosts;
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
      for (const auto& [mine, host_parameter] :
           {std::pair(ours.a, hosts.a), {ours.b, hosts.b}, {ours.c, hosts.c}}) {
        EXPECT_TRUE(mine.allclose(host_parameter, kTolerance, kTolerance))
            << step;
      }
    }
    EXPECT_FALSE(ours.a.allclose(at::ones({37}), 0.01, 0.01));
  }
}

TEST(ParameterUpdateOnDevice, ANormThatIsNotFiniteIsNoReasonToSkip) {
  const NormsStayOnDevices there;
  for (const double bad : {kInfinity, std::nan("")}) {
    ClippedModel model;
    auto update = ParameterUpdate::Create(Clipped(SgdOptions()), model.buffers);
    model.SetGradients(1, true, bad);
    ASSERT_TRUE(update->Step(0.1, std::nullopt).ok());
    EXPECT_TRUE(std::isnan(model.a[0].item<double>()));
    EXPECT_EQ(std::isnan(model.a[1].item<double>()), std::isnan(bad));
  }
}

TEST(ParameterUpdateOnDevice, IsTheHostsWhereTheDeviceCannot) {
  const NormsStayOnDevices there;
  const ClippedModel model;
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
}  // namespace tandem::unscale_gradients_test
