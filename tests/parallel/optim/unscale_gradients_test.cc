#include "parallel/optim/unscale_gradients.h"

#include <ATen/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/device_types.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem::unscale_gradients_test {
namespace {

// None, one, primes, and more than a vector.
const std::vector<int64_t> kSizes = {7, 0, 1, 13, 97, 2, 64, 1009};

// Parameters of these sizes, of two dtypes, with gradients but for some.
class Model {
 public:
  explicit Model(const std::vector<size_t>& without) {
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
    const Model model(without);
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
      const Model model({});
      model.all()[i].grad()[kSizes[i] - 1] = bad;
      EXPECT_TRUE(UnscaleGradients(model.buffers(), 0.5F)) << i;
      EXPECT_TRUE(UnscaleGradients(model.buffers(), 0.5F)) << i;
    }
  }
}

// Whatever lies at the place of a parameter without a gradient.
TEST_P(UnscaleGradientsTest, LooksAtGradientsAlone) {
  const Model model({3});
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

TANDEM_ON_DEVICE_TYPES(UnscaleGradientsTest);

}  // namespace
}  // namespace tandem::unscale_gradients_test
