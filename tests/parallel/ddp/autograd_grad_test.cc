// torch::autograd::grad through DistributedDataParallel: it gathers no
// gradients, and leaves backwards before and after it as they are.

#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::autograd_grad_test {
namespace {

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
}  // namespace tandem::autograd_grad_test
