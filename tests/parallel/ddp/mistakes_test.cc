// What users of DistributedDataParallel get wrong, and what they are told; and
// second names of one tensor, which are no mistake.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/core/testing/log_lines.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::mistakes_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class DdpMistakes : public DdpTest {};

// The weight of `in` has a name of the module's own too, which comes first.
struct Tied : torch::nn::Module {
  Tied()
      : first(register_module("first", torch::nn::Linear(4, 4))),
        in(register_module("in", torch::nn::Linear(4, 4))),
        mid(register_module("mid", torch::nn::Linear(4, 4))) {
    register_parameter("own", in->weight);
  }
  at::Tensor forward(const at::Tensor& x) {
    return mid(in(first(x)).tanh()).matmul(in->weight);
  }
  torch::nn::Linear first, in, mid;
};

absl::Status TrainThreeSteps(const DistributedDataParallelOptions& options,
                             Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Tied>(world, options));
  for (int step = 0; step < 3; ++step) {
    TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world)));
    TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
  }
  return absl::OkStatus();
}

TEST_P(DdpMistakes, AWeightMayBeDelayedOrWaitedForUnderItsSecondName) {
  for (const auto& [delayed, awaited] :
       {std::pair("in.weight", "first.weight"), {"mid.weight", "in.weight"}}) {
    DistributedDataParallelOptions options;
    options.delay_all_reduce_named_params = {delayed};
    options.param_to_hook_all_reduce = awaited;
    OnRanks(2, [&](Communicator& world) {
      return TrainThreeSteps(options, world);
    });
  }
}

TEST_P(DdpMistakes, AWeightMayBeIgnoredUnderItsSecondName) {
  OnRanks(2, [&](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.parameters_to_ignore = {"in.weight"};
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Tied>(world, options));
    for (int step = 0; step < 3; ++step) {
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world)));
      EXPECT_TRUE(
          twins.module->in->weight.grad().equal(twins.alone->in->weight.grad()))
          << "an ignored gradient is the rank's own";
      ZeroBoth(twins);
    }
    for (const FlatBuffer* buffer : twins.ddp->averaged_flat_buffers()) {
      for (const FlatSlot& slot : buffer->slots()) {
        EXPECT_FALSE(slot.parameter.is_same(twins.module->in->weight))
            << slot.name;
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(DdpMistakes, AWeightThatIsIgnoredCannotBeWaitedForUnderAnotherName) {
  OnRanks(1, [&](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.parameters_to_ignore = {"own"};
    options.delay_all_reduce_named_params = {"mid.weight"};
    options.param_to_hook_all_reduce = "in.weight";
    const absl::Status status = MakeTwins<Tied>(world, options).status();
    EXPECT_THAT(status, Says("parameters_to_ignore names too"));
    return absl::OkStatus();
  });
}

TEST_P(DdpMistakes, LibTorchsErrorsSayWhereTheyCameFrom) {
  OnRanks(1, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Tied>(world));
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world)));
    }
    const at::Tensor wrong = at::zeros({2, 3}).to(TestDevice());
    EXPECT_THAT(twins.ddp->Forward(wrong).status(),
                Says("forward of step 3 on rank 0: "));
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                            twins.ddp->Forward(ExampleInput(2, world)));
    const absl::Status status =
        twins.ddp->Backward([&] { return at::mse_loss(outputs, wrong); });
    EXPECT_THAT(status, InvalidArgument("loss of step 3 on rank 0: "));
    return absl::OkStatus();
  });
}

TEST_P(DdpMistakes, BackwardThatThrowsSaysItsStepAndRank) {
  OnRanks(1, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Tied>(world));
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                            twins.ddp->Forward(ExampleInput(0, world)));
    EXPECT_THAT(twins.ddp->Backward(outputs).message(),  // no scalar
                HasSubstr("backward of step 1 on rank 0: "));
    return absl::OkStatus();
  });
}

TEST_P(DdpMistakes, AModuleConvertedAfterItWasWrappedIsNoticed) {
  for (const bool find_unused : {false, true}) {
    OnRanks(1, [&](Communicator& world) -> absl::Status {
      DistributedDataParallelOptions options;
      options.find_unused_parameters = find_unused;
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Tied>(world, options));
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(0, world)));
      twins.module->to(at::kDouble);
      const absl::Status status =
          twins.ddp->Forward(ExampleInput(1, world).to(at::kDouble)).status();
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   "was replaced after its module was wrapped",
                                   "Double"));
      return absl::OkStatus();
    });
  }
}

TEST_P(DdpMistakes, AStepWithoutBackwardStepsNothingAndSaysSo) {
  OnRanks(1, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Tied>(world));
    TANDEM_ASSIGN_OR_RETURN(
        auto optimizer, MakeOptimizer(SgdOptions{}, twins.ddp->flat_buffers()));
    EXPECT_EQ(optimizer->Step(0.1), 0);
    TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(0, world)));
    EXPECT_EQ(optimizer->Step(0.1), 6);
    twins.ddp->ZeroGrad();
    EXPECT_EQ(optimizer->Step(0.1), 0);
    return absl::OkStatus();
  });
}

// With fewer batches: what it has done, what this one is at, and what to do.
TEST_P(DdpMistakes, ARankThatEndsEarlyIsToldOfWithTheBackwards) {
  OnRanks(2, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Tied>(world));
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world)));
      ZeroBoth(twins);
    }
    if (world.rank() == 1) return absl::OkStatus();
    absl::Status status = BackwardBoth(twins, ExampleInput(2, world));
    // What streams wait for the host learns here.
    if (status.ok()) status = world.Synchronize();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status, Says("rank 1"));
    // Gloo does not know whether it has left or died.
    if (world.backend() == "shm") {
      EXPECT_THAT(status, Says("it took part in 2 averaged backwards, and "
                               "this is number 3 here",
                               "Join"));
    }
    return absl::OkStatus();
  });
}

TEST_P(DdpMistakes, ABackwardThatIsLeftOutIsNoticed) {
  OnRanks(1, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Tied>(world));
    constexpr char said[] = "forwards with gradients before its backward";
    LogLines log;
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world)));
    }
    EXPECT_THAT(log.lines(), Not(Contains(HasSubstr(said))));
    {
      const at::NoGradGuard evaluation;
      TANDEM_RETURN_IF_ERROR(
          twins.ddp->Forward(ExampleInput(2, world)).status());
    }
    TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(2, world)));
    EXPECT_THAT(log.lines(), Not(Contains(HasSubstr(said))));
    TANDEM_RETURN_IF_ERROR(twins.ddp->Forward(ExampleInput(3, world)).status());
    TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(3, world)));
    EXPECT_TRUE(
        log.Await("step 4 on rank 0 has had 2 forwards with gradients "
                  "before its backward, where 1 was usual"));
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpMistakes);

// Graphs that DistributedDataParallel must refuse, and what it says of them:
// each rank that is wrong names its parameters, and every other rank fails too
// instead of waiting.

class DdpGraphErrors : public DdpTest {};

// The status of the first backward that fails, OK if none of `steps` does;
// step s uses layer b where `use_b` says so.
absl::Status Train(Twins<TwoLinear>& twins, Communicator& world, int steps,
                   const std::function<bool(int step)>& use_b) {
  for (int step = 0; step < steps; ++step) {
    TANDEM_RETURN_IF_ERROR(
        BackwardBoth(twins, ExampleInput(step, world), true, use_b(step)));
    ZeroBoth(twins);
  }
  return absl::OkStatus();
}

TEST_P(DdpGraphErrors, UnusedParameterIsNamedAtOnce) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
    const absl::Status status =
        Train(twins, world, 1, [](int) { return false; });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("b.weight"), Not(HasSubstr("a.weight")),
                      HasSubstr("find_unused_parameters")));
    return absl::OkStatus();
  });
}

TEST_P(DdpGraphErrors, UnusedOnOneRankEndsTheOthersToo) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
    absl::Status status = Train(twins, world, 3, [&](int step) {
      return step < 2 || world.rank() != 1;
    });
    // What streams wait for the host learns here.
    if (status.ok()) status = world.Synchronize();
    EXPECT_FALSE(status.ok());
    if (world.rank() == 1) {
      EXPECT_THAT(status, Says("b.weight"));
    } else {
      EXPECT_THAT(status, Says("rank 1"));
    }
    return absl::OkStatus();
  });
}

// Every unused parameter of nested modules is named, no used one, and none
// that is to be ignored.
struct Nested : torch::nn::Module {
  Nested()
      : used(register_module("used", torch::nn::Linear(4, 4))),
        sub(register_module("sub", std::make_shared<TwoLinear>())) {}
  at::Tensor forward(const at::Tensor& x) {
    return sub->forward(used(x), true, false);
  }
  torch::nn::Linear used;
  std::shared_ptr<TwoLinear> sub;
  torch::nn::Linear other{register_module("other", torch::nn::Linear(2, 2))};
};

TEST_P(DdpGraphErrors, NestedUnusedParametersAreNamedInFull) {
  for (bool ignore : {false, true}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      DistributedDataParallelOptions options;
      if (ignore) options.parameters_to_ignore = {"other.weight"};
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Nested>(world, options));
      const absl::Status status = BackwardBoth(twins, ExampleInput(0, world));
      EXPECT_THAT(
          status.message(),
          AllOf(HasSubstr("sub.b.weight"), HasSubstr("other.bias"),
                Not(HasSubstr("sub.a.weight")), Not(HasSubstr("used.weight"))));
      EXPECT_EQ(status.message().find("other.weight") == std::string::npos,
                ignore)
          << status;
      return absl::OkStatus();
    });
  }
}

TEST_P(DdpGraphErrors, StaticGraphMayNotUseMoreOrLess) {
  for (const bool more : {true, false}) {
    SCOPED_TRACE(more ? "more" : "less");
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      DistributedDataParallelOptions options;
      options.static_graph = true;
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
      const absl::Status status =
          Train(twins, world, 3, [&](int step) { return (step == 2) == more; });
      EXPECT_THAT(status, InvalidArgument("b.weight", "static_graph"));
      return absl::OkStatus();
    });
  }
}

// Its backward throws.
struct Explode : torch::autograd::Function<Explode> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                            const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* /*context*/,
      torch::autograd::variable_list /*gradients*/) {
    throw std::runtime_error("boom in backward");
  }
};

struct Explosive : torch::nn::Module {
  Explosive() : fc(register_module("fc", torch::nn::Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& x, bool explode) {
    return fc(explode ? Explode::apply(x) : x);
  }
  torch::nn::Linear fc;
};

// A wrapper that failed in backward leaves nothing on the module that a second
// one, on another group, would stumble over.
TEST_P(DdpGraphErrors, ModuleCanBeWrappedAnewAfterAFailedBackward) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        auto second,
        world.Subgroup({0, 1}, "second", SubgroupForTestDevice(world)));
    auto module = NewModule<Explosive>();
    at::Tensor x = ExampleInput(0, world).requires_grad_();
    {
      TANDEM_ASSIGN_OR_RETURN(auto ddp,
                              MakeDistributedDataParallel(module, world));
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor output, ddp->Forward(x, true));
      const absl::Status status = ddp->Backward(output.sum());
      EXPECT_THAT(status, Says("boom in backward"));
    }
    module->zero_grad();
    TANDEM_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(module, *second));
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor output, ddp->Forward(x, false));
    return ddp->Backward(output.sum());
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpGraphErrors);

}  // namespace
}  // namespace tandem::mistakes_test
