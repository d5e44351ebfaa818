#include "core/model/gradient_place.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <memory>

namespace tandem::gradient_place_test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// x times a number, whose gradient it puts if it can.
class Scaled : public torch::autograd::Function<Scaled> {
 public:
  static Variable forward(AutogradContext* context, const at::Tensor& x,
                          double factor) {
    context->saved_data["factor"] = factor;
    context->saved_data["x"] = x;
    return x * factor;
  }
  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const at::Tensor dx =
        gradients[0] * context->saved_data["factor"].toDouble();
    const bool has_put = GradientPlace::Put(
        context->saved_data["x"].toTensor(),
        [&](const at::Tensor& gradient) { gradient.copy_(dx); },
        [&] { return dx.isfinite().all().item<bool>(); });
    return {has_put ? at::Tensor() : dx, at::Tensor()};
  }
};

// Where the gradient of one parameter lies, while `memory` is defined.
struct Owner {
  at::Tensor parameter;
  at::Tensor memory;
  int completed = 0;
  bool is_finite = false;
  bool has_added = false;
};

class Place : public GradientPlace {
 public:
  explicit Place(Owner* owner) : owner_(owner) {}

 protected:
  at::Tensor Find() override {
    const bool is_free = !owner_->parameter.grad().defined();
    return is_free ? owner_->memory : at::Tensor();
  }
  void Begin(IsFinite is_finite) override {
    owner_->parameter.mutable_grad() = owner_->memory;
    owner_->is_finite = is_finite();
  }
  void Complete(bool has_added) override {
    ++owner_->completed;
    owner_->has_added = has_added;
  }

 private:
  Owner* owner_;
};

class GradientPlaceTest : public testing::Test {
 protected:
  GradientPlaceTest() {
    owner_.parameter = at::ones({3}).requires_grad_();
    owner_.memory = at::full({3}, -7.0);
    accumulator_ = torch::autograd::impl::grad_accumulator(owner_.parameter);
    accumulator_->add_post_hook(std::make_unique<Place>(&owner_));
  }

  // Is the gradient this many ones, in its place or in a tensor of its own?
  void ExpectGradient(double value, bool in_place) {
    const at::Tensor& gradient = owner_.parameter.grad();
    ASSERT_TRUE(gradient.defined());
    EXPECT_TRUE(gradient.detach().equal(at::full({3}, value)));
    EXPECT_EQ(gradient.is_alias_of(owner_.memory), in_place);
  }

  const at::Tensor& x() const { return owner_.parameter; }

  Owner owner_;
  c10::intrusive_ptr<torch::autograd::Node> accumulator_;
};

TEST_F(GradientPlaceTest, IsWrittenFirstAndAddedToByAutogradThen) {
  Scaled::apply(x(), 2).sum().backward();
  ExpectGradient(2, true);
  EXPECT_EQ(owner_.completed, 1);
  EXPECT_TRUE(owner_.is_finite);
  EXPECT_FALSE(owner_.has_added);
  Scaled::apply(x(), 3).sum().backward();
  ExpectGradient(5, true);
  EXPECT_EQ(owner_.completed, 2);
  EXPECT_TRUE(owner_.has_added);
}

TEST_F(GradientPlaceTest, FunctionsSayWhetherItIsFinite) {
  Scaled::apply(x(), INFINITY).sum().backward();
  EXPECT_TRUE(x().grad().is_alias_of(owner_.memory));
  EXPECT_FALSE(owner_.is_finite);
}

TEST_F(GradientPlaceTest, IsCompleteWhenAllUsesOfTheParameterHaveGiven) {
  (Scaled::apply(x(), 2) + Scaled::apply(x(), 3)).sum().backward();
  ExpectGradient(5, true);
  EXPECT_EQ(owner_.completed, 1);
}

TEST_F(GradientPlaceTest, TakesWhatAutogradAddsToo) {
  (Scaled::apply(x(), 2) + x() * 4).sum().backward();
  ExpectGradient(6, true);
  EXPECT_EQ(owner_.completed, 1);
}

TEST_F(GradientPlaceTest, AViewOfTheParameterStandsForIt) {
  Scaled::apply(x().view_as(x()), 2).sum().backward();
  ExpectGradient(2, true);
  EXPECT_EQ(owner_.completed, 1);
  // With others' in one backward, and after another.
  (Scaled::apply(x().view_as(x()), 3) + x() * 4).sum().backward();
  ExpectGradient(9, true);
  EXPECT_EQ(owner_.completed, 2);
}

TEST_F(GradientPlaceTest, AViewOfAPartDoesNot) {
  Scaled::apply(x().narrow(0, 0, 2), 2).sum().backward();
  EXPECT_TRUE(x().grad().equal(at::tensor({2., 2., 0.}, at::kFloat)));
  EXPECT_FALSE(x().grad().is_alias_of(owner_.memory));
}

TEST_F(GradientPlaceTest, WhoLooksAtAViewsGradientSeesIt) {
  const at::Tensor view = x().view_as(x());
  at::Tensor seen;
  view.register_hook([&](const at::Tensor& gradient) { seen = gradient; });
  Scaled::apply(view, 2).sum().backward();
  ASSERT_TRUE(seen.defined());
  EXPECT_TRUE(seen.equal(at::full({3}, 2.0)));
  ExpectGradient(2, false);
}

TEST_F(GradientPlaceTest, OfOtherFunctionsItHears) {
  (x() * 4).sum().backward();
  ExpectGradient(4, false);
  EXPECT_EQ(owner_.completed, 1);
}

TEST_F(GradientPlaceTest, GradGetsItsTensor) {
  const at::Tensor y = Scaled::apply(x(), 2).sum();
  const variable_list gradients = torch::autograd::grad({y}, {x()});
  EXPECT_TRUE(gradients[0].equal(at::full({3}, 2.0)));
  EXPECT_FALSE(x().grad().defined());
  EXPECT_EQ(owner_.completed, 0);
}

TEST_F(GradientPlaceTest, BackwardThatIsRecordedGetsItsTensor) {
  const at::Tensor y = Scaled::apply(x(), 2).sum();
  torch::autograd::backward({y}, {}, /*retain_graph=*/true,
                            /*create_graph=*/true);
  ExpectGradient(2, false);
}

TEST_F(GradientPlaceTest, AHookOnTheParameterSeesTheGradient) {
  at::Tensor seen;
  x().register_hook([&seen](const at::Tensor& gradient) { seen = gradient; });
  Scaled::apply(x(), 2).sum().backward();
  ASSERT_TRUE(seen.defined());
  EXPECT_TRUE(seen.equal(at::full({3}, 2.0)));
  ExpectGradient(2, false);
}

TEST_F(GradientPlaceTest, WithoutMemoryAnyMoreThereIsNone) {
  owner_.memory = at::Tensor();
  Scaled::apply(x(), 2).sum().backward();
  EXPECT_TRUE(x().grad().equal(at::full({3}, 2.0)));
}

TEST_F(GradientPlaceTest, OfATensorThatIsNoLeafThereIsNone) {
  const at::NoGradGuard no_grad;
  const auto never = [](const at::Tensor&) { FAIL(); };
  EXPECT_FALSE(GradientPlace::Put(x() * 2, never));
  EXPECT_FALSE(GradientPlace::Put(at::ones({3}), never));
}

TEST_F(GradientPlaceTest, OutsideOfABackwardItIsAnnounced) {
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(GradientPlace::Put(
      x(), [](const at::Tensor& gradient) { gradient.fill_(9); }));
  EXPECT_EQ(owner_.completed, 0);
  GradientPlace::Announce(x());
  EXPECT_EQ(owner_.completed, 1);
  ExpectGradient(9, true);
  GradientPlace::Announce(x());  // nothing has been put since
  EXPECT_EQ(owner_.completed, 1);
}

}  // namespace
}  // namespace tandem::gradient_place_test
