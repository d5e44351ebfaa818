// Gradients through checkpointed functions are those without checkpointing, bit
// for bit where it does not re-enter, whatever goes in and comes out.

#include "parallel/activation_checkpointing/checkpoint.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/torch_status.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"

namespace tandem::checkpoint_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The value: use_reentrant.
class CheckpointTest : public DeviceTypesAnd<bool> {
 protected:
  static at::Tensor Random(const std::string& name, at::IntArrayRef sizes) {
    return at::randn(sizes, GeneratorFor(1, name)).to(TestDevice());
  }
  static at::Tensor Leaf(const std::string& name, at::IntArrayRef sizes) {
    return Random(name, sizes).requires_grad_();
  }

  // With checkpointing, or (`on` false) without.
  template <typename F, typename... Args>
  static auto Run(bool on, F function, Args... arguments) {
    CheckpointOptions options;
    options.use_reentrant = value();
    return on ? Checkpoint(options, function, arguments...)
              : CallOrForward(function, arguments...);
  }

  // `compute` gives a loss, and adds to `leaves` what takes gradients.
  using Compute = std::function<at::Tensor(bool on, std::vector<at::Tensor>&)>;
  static std::vector<at::Tensor> Gradients(bool on, const Compute& compute) {
    std::vector<at::Tensor> leaves;
    compute(on, leaves).backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& each : leaves) gradients.push_back(each.grad());
    return gradients;
  }
  static void ExpectSame(const std::vector<at::Tensor>& found,
                         const std::vector<at::Tensor>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
      if (!found[i].defined()) continue;
      EXPECT_TRUE(IsSame(found[i], expected[i])) << i;
    }
  }
  // A backward within backward adds to a shared weight's gradient in another
  // order.
  static bool IsSame(const at::Tensor& found, const at::Tensor& expected) {
    return value() ? at::allclose(found, expected, 1e-5, 1e-6)
                   : at::equal(found, expected);
  }
  static void ExpectSameWithAndWithout(const Compute& compute) {
    ExpectSame(Gradients(true, compute), Gradients(false, compute));
  }
};
TANDEM_ON_DEVICE_TYPES_AND(CheckpointTest, testing::Bool());

at::Tensor Affine(const at::Tensor& x, const at::Tensor& weight) {
  return at::linear(x, weight).tanh().mul(2).sigmoid();
}

TEST_P(CheckpointTest, AFunctionOfInputsAndOfWhatItCaptures) {
  ExpectSameWithAndWithout([](bool on, auto& leaves) {
    const at::Tensor x = Leaf("x", {3, 5}), weight = Leaf("w", {7, 5});
    const at::Tensor captured = Leaf("v", {2, 7});
    leaves = {x, weight, captured};
    return Run(
               on,
               [captured](const at::Tensor& a, const at::Tensor& b) {
                 return at::linear(Affine(a, b), captured).exp();
               },
               x.mul(2), weight)
        .sum();
  });
}

// Parameters alone take a gradient; a batch's inputs do not.
TEST_P(CheckpointTest, NoInputNeedsAGradient) {
  ExpectSameWithAndWithout([](bool on, auto& leaves) {
    const at::Tensor weight = Leaf("w", {1, 5});
    leaves = {weight};
    return Run(
               on, [weight](const at::Tensor& x) { return Affine(x, weight); },
               Random("x", {3, 5}))
        .sum();
  });
}

TEST_P(CheckpointTest, NoInputAtAll) {
  ExpectSameWithAndWithout([](bool on, auto& leaves) {
    const at::Tensor weight = Leaf("w", {4});
    leaves = {weight};
    return Run(on, [weight] { return weight.exp().sin(); }).sum();
  });
}

// Keyword arguments are what a struct, a map or plain arguments are in C++.
TEST_P(CheckpointTest, ArgumentsAndResultsOfManyKinds) {
  using ByName = std::map<std::string, at::Tensor>;
  using Nested = std::vector<std::pair<std::optional<at::Tensor>, int>>;
  ExpectSameWithAndWithout([](bool on, auto& leaves) {
    const at::Tensor x = Leaf("x", {3, 5}), y = Leaf("y", {3, 5});
    const at::Tensor z = Leaf("z", {5});
    leaves = {x, y, z};
    const auto [product, by_name, label, flags] = Run(
        on,
        [](const ByName& in, const Nested& nested, const std::string& text,
           double factor, const at::Tensor& none) {
          EXPECT_FALSE(none.defined());
          EXPECT_FALSE(nested[1].first.has_value());
          const at::Tensor a = in.at("x").sin(), b = in.at("y").cos();
          ByName out = {{"sum", (a + b).exp()},
                        {"whole", in.at("whole") + nested[1].second},
                        {"constant", in.at("x").detach().mul(2)}};
          return std::make_tuple(a * b * factor * *nested[0].first, out,
                                 text + "!", std::vector<bool>{true});
        },
        ByName{{"x", x}, {"y", y}, {"whole", at::randint(9, {2}, at::kLong)}},
        Nested{{z, 1}, {std::nullopt, 2}}, std::string("text"), 0.5,
        at::Tensor());
    EXPECT_EQ(label, "text!");
    EXPECT_TRUE(flags[0]);
    EXPECT_FALSE(by_name.at("whole").requires_grad());
    EXPECT_TRUE(by_name.at("sum").requires_grad());
    return product.sum() + by_name.at("sum").mul(by_name.at("sum")).sum();
  });
}

TEST_P(CheckpointTest, AModule) {
  ExpectSameWithAndWithout([](bool on, auto& leaves) {
    torch::manual_seed(3);
    torch::nn::Linear linear(5, 5);
    linear->to(TestDevice());
    leaves = linear->parameters();
    const at::Tensor x = Leaf("x", {3, 5});
    leaves.push_back(x);
    return Run(on, linear, Run(on, linear.ptr(), x).tanh()).exp().sum();
  });
}

TEST_P(CheckpointTest, OutputsOfWhichSomeAreNotUsed) {
  ExpectSameWithAndWithout([](bool on, auto& leaves) {
    const at::Tensor x = Leaf("x", {3}), y = Leaf("y", {3});
    leaves = {x, y};
    return Run(
               on,
               [](const at::Tensor& a, const at::Tensor& b) {
                 return std::vector<at::Tensor>{a.exp(), b.exp()};
               },
               x, y)[0]
        .sum();
  });
}

TEST_P(CheckpointTest, OneLayerTwiceAndSharedWeights) {
  ExpectSameWithAndWithout([](bool on, auto& leaves) {
    const at::Tensor weight = Leaf("w", {5, 5}), x = Leaf("x", {2, 5});
    leaves = {weight, x};
    const auto layer = [weight](const at::Tensor& in) {
      return Affine(in, weight);
    };
    const at::Tensor first = Run(on, layer, at::linear(x, weight));
    return at::linear(Run(on, layer, first), weight).exp().sum();
  });
}

TEST_P(CheckpointTest, CheckpointsWithinCheckpoints) {
  ExpectSameWithAndWithout([](bool on, auto& leaves) {
    const at::Tensor w = Leaf("w", {5, 5}), v = Leaf("v", {5, 5});
    const at::Tensor x = Leaf("x", {2, 5});
    leaves = {w, v, x};
    const auto inner = [v](const at::Tensor& in) { return Affine(in, v); };
    const auto middle = [on, inner, w](const at::Tensor& in) {
      return Run(on, inner, Run(on, inner, Affine(in, w)).exp()).sin();
    };
    const auto outer = [on, middle, w](const at::Tensor& in) {
      return Run(on, middle, Affine(Run(on, middle, in), w)).cos();
    };
    return Run(on, outer, Run(on, outer, x)).exp().sum();
  });
}

TEST_P(CheckpointTest, SeveralLossesOneAfterTheOther) {
  const Compute two_losses = [](bool on, auto& leaves) {
    const at::Tensor weight = Leaf("w", {5, 5}), x = Leaf("x", {2, 5});
    leaves = {weight, x};
    const at::Tensor y = Run(
        on, [weight](const at::Tensor& in) { return Affine(in, weight); }, x);
    y.exp().sum().backward({}, /*retain_graph=*/true);
    y.sin().sum().backward({}, /*retain_graph=*/true);
    return y.cos().sum();
  };
  ExpectSameWithAndWithout(two_losses);
}

TEST_P(CheckpointTest, WithoutGradientsItIsACall) {
  int calls = 0;
  const at::NoGradGuard no_grad;
  const at::Tensor y = Run(
      true,
      [&calls](const at::Tensor& x) {
        ++calls;
        return x.exp();
      },
      Leaf("x", {3}));
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(calls, 1);
}

TEST_P(CheckpointTest, TheFunctionRunsOnceInForwardAndOnceInBackward) {
  int calls = 0;
  const at::Tensor x = Leaf("x", {3});
  const at::Tensor y = Run(
      true,
      [&calls](const at::Tensor& in) {
        ++calls;
        return in.exp().sin().exp();
      },
      x);
  EXPECT_EQ(calls, 1);
  y.sum().backward();
  EXPECT_EQ(calls, 2);
}

TEST_P(CheckpointTest, TensorsOfNoElementsAndOfNone) {
  ExpectSameWithAndWithout([](bool on, auto& leaves) {
    const at::Tensor x = Leaf("x", {0, 5}), scalar = Leaf("s", {});
    leaves = {x, scalar};
    return Run(
               on,
               [](const at::Tensor& a, const at::Tensor& b) {
                 return a.exp().sum() + b.exp();
               },
               x, scalar)
        .sum();
  });
}

// What a checkpointed function must not do, and what is said about it.

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
}  // namespace tandem::checkpoint_test
