// What users of DistributedDataParallel get wrong, and what they are told; and
// second names of one tensor, which are no mistake.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/core/testing/log_lines.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::mistakes_test {
namespace {

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

TEST_P(DdpMistakes, AWeightMayBeDelayedUnderItsSecondName) {
  OnRanks(2, [&](Communicator& world) {
    DistributedDataParallelOptions options;
    options.delay_all_reduce_named_params = {"in.weight"};
    options.param_to_hook_all_reduce = "first.weight";
    return TrainThreeSteps(options, world);
  });
}

TEST_P(DdpMistakes, AWeightMayBeWaitedForUnderItsSecondName) {
  OnRanks(2, [&](Communicator& world) {
    DistributedDataParallelOptions options;
    options.delay_all_reduce_named_params = {"mid.weight"};
    options.param_to_hook_all_reduce = "in.weight";
    return TrainThreeSteps(options, world);
  });
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

}  // namespace
}  // namespace tandem::mistakes_test
