// What a checkpointed function must not do, and what is said about it.

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "core/base/torch_status.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/activation_checkpointing/checkpoint.h"

namespace tandem::checkpoint_errors_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CheckpointErrorsTest : public DeviceTypeTest {
 protected:
  static at::Tensor Leaf() {
    return at::ones({2, 3}, TestDevice()).requires_grad_();
  }
  // What a backward says through a function that is told which time it runs.
  using Function = std::function<at::Tensor(const at::Tensor& x, bool first)>;
  static std::string Said(const Function& function,
                          CheckpointOptions options = {}) {
    options.name = "block 3";
    const auto calls = std::make_shared<int>(0);
    const at::Tensor y = Checkpoint(
        options,
        [function, calls](const at::Tensor& x) {
          return function(x, (*calls)++ == 0);
        },
        Leaf());
    return std::string(CatchTorch([&] { y.sum().backward(); }).message());
  }
};
TANDEM_ON_DEVICE_TYPES(CheckpointErrorsTest);

TEST_P(CheckpointErrorsTest, AnotherShapeTheSecondTime) {
  const Function function = [](const at::Tensor& x, bool first) {
    return (first ? x : x.narrow(0, 0, 1)).exp().sin();
  };
  EXPECT_THAT(Said(function), AllOf(HasSubstr("block 3 has kept other tensors"),
                                    HasSubstr("tensor 0 was Float[2, 3]"),
                                    HasSubstr("is Float[1, 3]")));
}

TEST_P(CheckpointErrorsTest, AnotherDtypeTheSecondTime) {
  const Function function = [](const at::Tensor& x, bool first) {
    return x.to(first ? at::kFloat : at::kDouble).exp().sin();
  };
  EXPECT_THAT(Said(function), AllOf(HasSubstr("was Float[2, 3]"),
                                    HasSubstr("is Double[2, 3]")));
}

TEST_P(CheckpointErrorsTest, FewerOrMoreTensorsTheSecondTime) {
  const auto shorter = [](const at::Tensor& x, bool first) {
    return first ? x.exp().exp() : x.exp();
  };
  EXPECT_THAT(Said(shorter),
              AllOf(HasSubstr("block 3 has kept 2 tensors"),
                    HasSubstr("but 1 when it was computed again")));
  const auto longer = [](const at::Tensor& x, bool first) {
    return first ? x.exp() : x.exp().exp();
  };
  CheckpointOptions options;
  options.early_stop = false;
  EXPECT_THAT(Said(longer, options), HasSubstr("but 2 when it was"));
  EXPECT_EQ(Said(longer), "");  // nobody comes to see the second
}

TEST_P(CheckpointErrorsTest, ShapesAreComparedUnlessToldNotTo) {
  CheckpointOptions options;
  options.determinism_check = false;
  const std::string said = Said(
      [](const at::Tensor& x, bool first) {
        return (first ? x : x * at::ones({2, 1}, x.options())).exp();
      },
      options);
  EXPECT_THAT(said, ::testing::Not(HasSubstr("other tensors")));
}

// Its second run would begin from something else.
TEST_P(CheckpointErrorsTest, AnInputThatIsChangedInPlace) {
  const absl::Status status = CatchTorch([] {
    const at::Tensor x = Leaf() * 2;
    Checkpoint([](at::Tensor in) { return in.mul_(3).exp(); }, x);
  });
  EXPECT_THAT(status, Says("changes its input 0 in place"));
}

TEST_P(CheckpointErrorsTest, AnInputThatChangesBeforeBackward) {
  const at::Tensor x = Leaf() * 2;
  const at::Tensor y =
      Checkpoint([](const at::Tensor& in) { return in.exp(); }, x);
  x.mul_(3);
  EXPECT_THAT(CatchTorch([&] { y.sum().backward(); }),
              Says("modified by an inplace operation"));
}

TEST_P(CheckpointErrorsTest, WhatTheFunctionThrowsPasses) {
  const auto fails = [](const at::Tensor& x, bool first) {
    TORCH_CHECK(first, "the second time it fails");
    return x.exp().sin();
  };
  EXPECT_THAT(Said(fails), HasSubstr("the second time it fails"));
  const absl::Status status = CatchTorch([] {
    Checkpoint(
        [](const at::Tensor& x) {
          TORCH_CHECK(false, "it fails at once");
          return x;
        },
        Leaf());
  });
  EXPECT_THAT(status, Says("it fails at once"));
  // And the next one is none the worse for it.
  EXPECT_EQ(Said([](const at::Tensor& x, bool) { return x.exp(); }), "");
}

}  // namespace
}  // namespace tandem::checkpoint_errors_test
