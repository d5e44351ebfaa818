#include "parallel/optim/gradient_clipping.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "parallel/optim/flat_buffer.h"
#include "tests/models/rounding.h"

namespace tandem::gradient_clipping_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Parameters in flat buffers, and the same by themselves, with equal gradients.
class Twins {
 public:
  explicit Twins(std::vector<at::Tensor> gradients) {
    for (at::Tensor& each : gradients) each = each.to(TestDevice());
    NamedTensors named;
    for (const at::Tensor& gradient : gradients) {
      for (auto* twins : {&flat, &plain}) {
        twins->push_back(at::zeros_like(gradient).requires_grad_(true));
      }
      named.emplace_back(absl::StrCat("p", named.size()), flat.back());
    }
    buffers = MakeFlatBuffers(named);
    for (size_t i = 0; i < gradients.size(); ++i) {
      (flat[i] * gradients[i]).sum().backward();
      plain[i].mutable_grad() = gradients[i].clone();
    }
  }

  // LibTorch has no greatest element of an empty gradient.
  double ClipWithPyTorch(double max_norm, double norm_type) const {
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& each : plain) {
      if (each.numel() > 0) parameters.push_back(each);
    }
    return torch::nn::utils::clip_grad_norm_(parameters, max_norm, norm_type);
  }

  void ExpectSameGradients(double tolerance) const {
    for (size_t i = 0; i < flat.size(); ++i) {
      EXPECT_TRUE(at::allclose(flat[i].grad(), plain[i].grad(), tolerance,
                               /*atol=*/0))
          << "parameter " << i;
    }
  }

  std::vector<at::Tensor> flat;
  std::vector<at::Tensor> plain;
  FlatBuffers buffers;
};

// Sizes around those that the loops take at a time, and two dtypes.
std::vector<at::Tensor> Gradients() {
  std::vector<at::Tensor> gradients;
  for (int64_t size : {0, 1, 2, 7, 8, 9, 17, 1009}) {
    gradients.push_back(at::linspace(-3, 2, size).add(0.01 * size));
  }
  gradients.push_back(at::linspace(-1, 4, 23, at::kDouble));
  gradients.push_back(at::full({3, 5}, -0.5));
  return gradients;
}

class NormTypeTest : public DeviceTypesAnd<double> {};

TEST_P(NormTypeTest, ClipsAsPyTorchDoes) {
  for (double max_norm : {0.5, 1e6}) {
    Twins twins(Gradients());
    const double expected = twins.ClipWithPyTorch(max_norm, value());
    const ClipNormOptions options = {max_norm, value()};
    const absl::StatusOr<double> norm =
        ClipGradientNorm(twins.buffers, options);
    ASSERT_TRUE(norm.ok()) << norm.status();
    // PyTorch sums up to 1,009 squares of a gradient in float32.
    const double rounding = RoundingTolerance(at::kFloat, 1009, 1);
    EXPECT_NEAR(*norm, expected, rounding * expected);
    twins.ExpectSameGradients(rounding);
  }
}

TEST_P(NormTypeTest, EqualsTheNormOfAllElements) {
  Twins twins(Gradients());
  std::vector<at::Tensor> all;
  for (const at::Tensor& gradient : Gradients()) {
    all.push_back(gradient.to(at::kDouble).flatten());
  }
  const double expected =
      at::linalg_vector_norm(at::cat(all), value()).item<double>();
  EXPECT_NEAR(GradientNorm(twins.buffers, value()), expected, 1e-13 * expected);
}

TEST_P(NormTypeTest, DoesNotDependOnTheLayout) {
  Twins twins(Gradients());
  const double norm = GradientNorm(twins.buffers, value());
  std::vector<size_t> order;
  const size_t count = twins.buffers[0]->slots().size();
  for (size_t i = 0; i < count; ++i) order.push_back((i * 5 + 3) % count);
  twins.buffers[0]->Reorder(order);
  EXPECT_EQ(GradientNorm(twins.buffers, value()), norm);
}

TEST_P(NormTypeTest, LeavesParametersWithoutGradientOut) {
  Twins twins({at::full({9}, 100.), at::full({9}, 1.)});
  for (auto& buffer : twins.buffers) buffer->ZeroGrad();
  EXPECT_EQ(GradientNorm(twins.buffers, value()), 0);
  twins.flat[1].sum().backward();
  EXPECT_NEAR(GradientNorm(twins.buffers, value()),
              at::linalg_vector_norm(at::ones({9}), value()).item<double>(),
              1e-6);
}

TEST_P(NormTypeTest, NaNsAndInfinitiesShow) {
  for (double bad : {std::nan(""), kInfinity, -kInfinity}) {
    for (int64_t where : {0, 5, 1008}) {
      std::vector<at::Tensor> gradients = Gradients();
      gradients[7][where] = bad;
      Twins twins(gradients);
      const double expected = twins.ClipWithPyTorch(1, value());
      const double norm = GradientNorm(twins.buffers, value());
      EXPECT_EQ(std::isnan(norm), std::isnan(expected)) << bad;
      EXPECT_FALSE(std::isfinite(norm)) << bad;
    }
  }
}

TANDEM_ON_DEVICE_TYPES_AND(NormTypeTest,
                           testing::Values(2, 1, kInfinity, 3, 0.5));

class GradientClippingTest : public DeviceTypeTest {};

// A sum in float would be off by more; PyTorch's is.
TEST_P(GradientClippingTest, IsExactForManyElements) {
  const at::Tensor gradient = at::full({1 << 22}, 0.1f);
  Twins twins({gradient});
  EXPECT_NEAR(GradientNorm(twins.buffers), 2048 * double{0.1f}, 1e-9);
}

TEST_P(GradientClippingTest, HalfPrecisionGradientsToo) {
  std::vector<at::Tensor> gradients = Gradients();
  for (at::Tensor& gradient : gradients) gradient = gradient.to(at::kBFloat16);
  gradients.push_back(at::full({7}, 2.));
  Twins twins(gradients);
  for (double type : {2., 1., kInfinity}) {
    std::vector<at::Tensor> all;
    for (const at::Tensor& gradient : gradients) {
      all.push_back(gradient.to(at::kDouble).flatten());
    }
    const double expected =
        at::linalg_vector_norm(at::cat(all), type).item<double>();
    EXPECT_NEAR(GradientNorm(twins.buffers, type), expected, 1e-5 * expected);
  }
}

TEST_P(GradientClippingTest,
       ErrorIfNonfiniteNamesTheParameterAndChangesNothing) {
  std::vector<at::Tensor> gradients = Gradients();
  gradients[3][2] = kInfinity;
  gradients[4][2] = std::nan("");
  Twins twins(gradients);
  ClipNormOptions options;
  options.error_if_nonfinite = true;
  const absl::Status status = ClipGradientNorm(twins.buffers, options).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange,
                               "the gradient of p3 is not finite"));
  EXPECT_EQ(twins.flat[7].grad()[0].item<float>(),
            gradients[7][0].item<float>());
  // Without it all become NaN or zero.
  EXPECT_TRUE(ClipGradientNorm(twins.buffers, ClipNormOptions()).ok());
  EXPECT_TRUE(std::isnan(twins.flat[7].grad()[0].item<float>()));
}

TEST_P(GradientClippingTest, ANormThatIsNoNumberHasNoSign) {
  const absl::Status status = NonFiniteNormError(-std::nan(""), 2, "w");
  EXPECT_THAT(status, Says("gradients is nan and"));
}

TEST_P(GradientClippingTest, ErrorIfNonfiniteLetsFiniteOnesThrough) {
  Twins twins({at::full({4}, 2.)});
  const ClipNormOptions options = {1, 2, true};
  EXPECT_EQ(*ClipGradientNorm(twins.buffers, options), 4);
  EXPECT_NEAR(twins.flat[0].grad()[0].item<float>(), 0.5, 1e-6);
}

// Powers of 1e360, and of nearly 0.
TEST_P(GradientClippingTest, PowersMayBeMoreThanADoubleHolds) {
  Twins large({at::full({4}, 1e36), at::full({5}, 1e36)});
  const absl::StatusOr<double> norm =
      ClipGradientNorm(large.buffers, ClipNormOptions{1, 10});
  ASSERT_TRUE(norm.ok()) << norm.status();
  EXPECT_NEAR(*norm / 1e36, std::pow(9, 0.1), 1e-6);
  for (const at::Tensor& each : large.flat) {
    EXPECT_NEAR(each.grad()[0].item<float>(), std::pow(9, -0.1), 1e-6);
  }
  Twins small({at::full({4}, 1e-3)});
  ASSERT_TRUE(
      ClipGradientNorm(small.buffers, ClipNormOptions{1e-4, 1e308}).ok());
  EXPECT_NEAR(small.flat[0].grad()[0].item<float>(), 1e-4, 1e-6);
}

// 40,000^10, which float32 does not hold, and 2000^100, which no double does.
TEST_P(GradientClippingTest, ANormThatIsTooLargeIsRefusedOrScalesAllTheSame) {
  Twins many({at::full({40000}, 1e10)});
  const double all = std::pow(40000., 10.) * 1e10;
  const absl::StatusOr<double> norm =
      ClipGradientNorm(many.buffers, ClipNormOptions{1e50, 0.1});
  ASSERT_TRUE(norm.ok()) << norm.status();
  EXPECT_NEAR(*norm / all, 1, 1e-6);
  EXPECT_NEAR(many.flat[0].grad()[0].item<float>() / (1e60 / all), 1, 1e-5);

  Twins twins({at::full({2000}, 2.)});
  const absl::Status status =
      ClipGradientNorm(twins.buffers, ClipNormOptions{1, 0.01}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange,
                               "though each of them is"));
  EXPECT_EQ(twins.flat[0].grad()[0].item<float>(), 2);
}

// The factor is of fewer digits than float32's.
TEST_P(GradientClippingTest, ScalesByLessThanAFloatHolds) {
  Twins twins({at::full({4}, 0x1p126)});
  ScaleGradients(twins.buffers, 1, 3e42);
  EXPECT_NEAR(twins.flat[0].grad()[0].item<float>() * 3e42 / 0x1p126, 1, 1e-6);
}

TEST_P(GradientClippingTest, NamesTheOptionThatIsWrong) {
  Twins twins({at::ones({4})});
  const auto error = [&](const ClipNormOptions& options) {
    const absl::Status status =
        ClipGradientNorm(twins.buffers, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error({0}), "max_norm must be greater than 0, got 0");
  EXPECT_EQ(error({1, 0}),
            "norm_type must be greater than 0 (2, 1, infinity), got 0");
  EXPECT_TRUE(absl::StartsWith(error({std::nan("")}), "max_norm"));
  EXPECT_TRUE(absl::StartsWith(error({1, std::nan("")}), "norm_type"));
}

TEST_P(GradientClippingTest, ValuesAreClamped) {
  Twins twins({at::full({3}, 3.), at::full({1}, -4.),
               at::full({2, 2}, 12., at::kDouble)});
  ClipGradientValue(twins.buffers, 3.5);
  EXPECT_TRUE(twins.flat[0].grad().cpu().equal(at::full({3}, 3.)));
  EXPECT_TRUE(twins.flat[1].grad().cpu().equal(at::full({1}, -3.5)));
  EXPECT_TRUE(
      twins.flat[2].grad().cpu().equal(at::full({2, 2}, 3.5, at::kDouble)));
}

TEST_P(GradientClippingTest, NothingToClip) {
  EXPECT_EQ(GradientNorm({}), 0);
  EXPECT_EQ(ClipGradientNorm({}, 1), 0);
  ClipGradientValue({}, 1);
}

// Doubles are summed without AVX2, floats with it where there is any.
TEST_P(GradientClippingTest, VectorsOfTheMachineChangeNoBit) {
  for (int64_t size : {1, 15, 16, 17, 1000, 100003}) {
    const at::Tensor values = at::linspace(-3, 2, size).sin();
    EXPECT_EQ(GradientNorm(Twins({values}).buffers),
              GradientNorm(Twins({values.to(at::kDouble)}).buffers))
        << size;
  }
}

TANDEM_ON_DEVICE_TYPES(GradientClippingTest);

}  // namespace
}  // namespace tandem::gradient_clipping_test
