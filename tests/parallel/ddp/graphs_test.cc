// Graphs that differ between ranks and steps: the cases that PyTorch's own
// tests of DistributedDataParallel go through (README.md, beside this file,
// says which is which).

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::graphs_test {
namespace {

class DdpGraphs : public DdpTest {};

DistributedDataParallelOptions FindUnused() {
  DistributedDataParallelOptions options;
  options.find_unused_parameters = true;
  return options;
}

DistributedDataParallelOptions StaticGraph() {
  DistributedDataParallelOptions options;
  options.static_graph = true;
  return options;
}

// A number is added to one task's parameter; the third task never is used.
struct Tasks : torch::nn::Module {
  Tasks()
      : t0(register_parameter("t0", at::ones({2, 2}))),
        t1(register_parameter("t1", at::ones({2, 2}))),
        unused(register_parameter("unused", at::ones({2, 2}))) {}
  at::Tensor forward(double x, int task) {
    return (task == 0 ? t0 : t1).add(x).mean();
  }
  at::Tensor t0, t1, unused;
};

TEST_P(DdpGraphs, UsedOnSomeRanksHasAMeanUsedOnNoneHasNothing) {
  for (const auto& options : {FindUnused(), StaticGraph()}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Tasks>(world, options));
      for (int step = 0; step < 3; ++step) {
        TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, 8., world.rank()));
        for (const at::Tensor& used : {twins.module->t0, twins.module->t1}) {
          EXPECT_TRUE(used.grad().cpu().equal(at::full({2, 2}, 0.125)))
              << "step " << step << "\n"
              << used.grad();
        }
        EXPECT_FALSE(twins.module->unused.grad().defined());
        ZeroBoth(twins);
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(DdpGraphs, OneRankUsesAllAnotherUsesSome) {
  for (const auto& options : {FindUnused(), StaticGraph()}) {
    OnRanks(3, [&](Communicator& world) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
      for (int step = 0; step < 4; ++step) {
        TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world),
                                            true, world.rank() == 0));
        TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(DdpGraphs, ControlFlowThatIsTheSameOnAllRanks) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins,
                            MakeTwins<TwoLinear>(world, FindUnused()));
    for (int step = 0; step < 6; ++step) {
      TANDEM_RETURN_IF_ERROR(
          BackwardBoth(twins, ExampleInput(step, world), true, step % 2 == 1));
      TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
    }
    return absl::OkStatus();
  });
}

TEST_P(DdpGraphs, ControlFlowThatDiffersBetweenRanks) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins,
                            MakeTwins<TwoLinear>(world, FindUnused()));
    for (int step = 0; step < 6; ++step) {
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world),
                                          true,
                                          step % 2 == 1 && world.rank() == 1));
      TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
    }
    return absl::OkStatus();
  });
}

// Without ZeroGrad: gradients add up, and that of an unused parameter stays.
TEST_P(DdpGraphs, GradientOfAParameterThatGoesUnusedStays) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins,
                            MakeTwins<TwoLinear>(world, FindUnused()));
    at::Tensor kept;
    for (int step = 0; step < 5; ++step) {
      TANDEM_RETURN_IF_ERROR(
          BackwardBoth(twins, ExampleInput(step, world), true, step < 2));
      if (step == 1) kept = twins.module->b->weight.grad().clone();
      if (step > 1) {
        EXPECT_TRUE(twins.module->b->weight.grad().equal(kept));
      }
      TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
    }
    return absl::OkStatus();
  });
}

TEST_P(DdpGraphs, UndefinedGradientsStayUndefined) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins,
                            MakeTwins<TwoLinear>(world, FindUnused()));
    for (int step = 0; step < 3; ++step) {
      TANDEM_ASSIGN_OR_RETURN(
          const at::Tensor outputs,
          twins.ddp->Forward(ExampleInput(step, world), true, true));
      auto undefine = std::make_shared<torch::autograd::UndefinedGrad>();
      TANDEM_RETURN_IF_ERROR(
          twins.ddp->Backward((*undefine)({outputs.sum()})[0]));
      EXPECT_FALSE(twins.module->a->weight.grad().defined());
      EXPECT_FALSE(twins.module->b->weight.grad().defined());
    }
    TANDEM_RETURN_IF_ERROR(
        BackwardBoth(twins, ExampleInput(3, world), true, true));
    return ExpectMeanGradients(twins, world);
  });
}

// Rank 0 uses one pair of layers, the others another; only the second
// microbatch is synchronised.
struct Conditional : torch::nn::Module {
  Conditional() {
    for (int i = 0; i < 4; ++i) {
      layers.push_back(
          register_module(absl::StrCat("nn", i), torch::nn::Linear(1, 1)));
    }
  }
  at::Tensor forward(const at::Tensor& x, int layer) {
    return layers[layer](x);
  }
  std::vector<torch::nn::Linear> layers;
};

TEST_P(DdpGraphs, GradientsOfNoSyncCountWhereTheLastBackwardUsesOthers) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins,
                            MakeTwins<Conditional>(world, FindUnused()));
    const int first = world.rank() == 0 ? 0 : 2;
    const at::Tensor input = at::full({1, 1}, 1. + world.rank(), TestDevice());
    {
      const auto guard = twins.ddp->no_sync();
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, input, first));
    }
    TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, input, first + 1));
    for (const auto& parameter : twins.module->named_parameters()) {
      EXPECT_TRUE(parameter->grad().defined()) << parameter.key();
    }
    return ExpectMeanGradients(twins, world);
  });
}

// PyTorch 2.15 breaks an assertion of its own here.
TEST_P(DdpGraphs, StaticGraphMayBeginWithNoSync) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins,
                            MakeTwins<TwoLinear>(world, StaticGraph()));
    for (int step = 0; step < 4; ++step) {
      {
        const auto guard = twins.ddp->no_sync();
        TANDEM_RETURN_IF_ERROR(
            BackwardBoth(twins, ExampleInput(step, world), true, true));
      }
      TANDEM_RETURN_IF_ERROR(
          BackwardBoth(twins, ExampleInput(step + 10, world), true, true));
      TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
    }
    return absl::OkStatus();
  });
}

// One tensor, two names, and unused under both.
struct SharedUnused : torch::nn::Module {
  SharedUnused()
      : used(register_module("used", torch::nn::Linear(4, 3))),
        unused(register_module("unused", torch::nn::Linear(4, 3))) {
    bias = register_parameter("bias", unused->bias);
  }
  at::Tensor forward(const at::Tensor& x) { return used(x); }
  torch::nn::Linear used, unused;
  at::Tensor bias;
};

TEST_P(DdpGraphs, UnusedParameterOfTwoNames) {
  for (const auto& options : {FindUnused(), StaticGraph()}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(auto twins,
                              MakeTwins<SharedUnused>(world, options));
      for (int step = 0; step < 6; ++step) {
        TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world)));
        TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
      }
      return absl::OkStatus();
    });
  }
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpGraphs);

// torch::autograd::grad through DistributedDataParallel: it gathers no
// gradients, and leaves backwards before and after it as they are.

class DdpAutogradGrad : public DdpTest {};

std::vector<DistributedDataParallelOptions> EveryKind() {
  std::vector<DistributedDataParallelOptions> kinds(4);
  kinds[1].static_graph = true;
  kinds[2].find_unused_parameters = true;
  kinds[3].find_unused_parameters = true;
  kinds[3].skip_all_reduce_unused_params = true;
  return kinds;
}

absl::Status StepBoth(Twins<TwoLinear>& twins, int step, Communicator& world) {
  ZeroBoth(twins);
  TANDEM_RETURN_IF_ERROR(
      BackwardBoth(twins, ExampleInput(step, world), true, true));
  return ExpectMeanGradients(twins, world);
}

TEST_P(DdpAutogradGrad, GivesThisRanksOwnAndDisturbsNoStep) {
  for (const auto& options : EveryKind()) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
      for (int step = 0; step < 4; ++step) {
        const at::Tensor x = ExampleInput(step + 9, world).requires_grad_(true);
        TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                                twins.ddp->Forward(x, true, true));
        const auto mine =
            torch::autograd::grad({output.sum()}, {x, twins.module->a->weight});
        const auto alone =
            torch::autograd::grad({twins.alone->forward(x, true, true).sum()},
                                  {x, twins.alone->a->weight});
        for (int i : {0, 1}) EXPECT_TRUE(mine[i].allclose(alone[i]));
        TANDEM_RETURN_IF_ERROR(StepBoth(twins, step, world));
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(DdpAutogradGrad, MayBeCalledOnOneRankAlone) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = ExampleInput(step + 9, world).requires_grad_(true);
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                              twins.ddp->Forward(x, true, true));
      if (world.rank() == 1) torch::autograd::grad({output.sum()}, {x});
      TANDEM_RETURN_IF_ERROR(StepBoth(twins, step, world));
    }
    return absl::OkStatus();
  });
}

at::Tensor WithPenalty(const at::Tensor& output, const at::Tensor& x) {
  const auto slope =
      torch::autograd::grad({output.sum()}, {x}, /*grad_outputs=*/{},
                            /*retain_graph=*/true, /*create_graph=*/true);
  return output.sum().add(slope[0].square().sum());
}

// One backward through the gradient of the same forward.
TEST_P(DdpAutogradGrad, APenaltyOnGradientsIsAveragedWithTheRest) {
  for (const auto& options : EveryKind()) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
      for (int step = 0; step < 4; ++step) {
        ZeroBoth(twins);
        const at::Tensor x = ExampleInput(step, world).requires_grad_(true);
        TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                                twins.ddp->Forward(x, true, true));
        TANDEM_RETURN_IF_ERROR(twins.ddp->Backward(WithPenalty(output, x)));
        WithPenalty(twins.alone->forward(x, true, true), x).backward();
        TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
      }
      return absl::OkStatus();
    });
  }
}

// backward(inputs=...) does gather, and is averaged.
TEST_P(DdpAutogradGrad, BackwardToSomeParametersIsABackward) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.find_unused_parameters = true;
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
    for (int step = 0; step < 3; ++step) {
      ZeroBoth(twins);
      const at::Tensor x = ExampleInput(step, world);
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                              twins.ddp->Forward(x, true, true));
      const std::vector<at::Tensor> ours = {twins.module->a->weight};
      const std::vector<at::Tensor> theirs = {twins.alone->a->weight};
      output.sum().backward({}, std::nullopt, false, at::TensorList(ours));
      twins.alone->forward(x, true, true)
          .sum()
          .backward({}, std::nullopt, false, at::TensorList(theirs));
      TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
    }
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpAutogradGrad);

}  // namespace
}  // namespace tandem::graphs_test
