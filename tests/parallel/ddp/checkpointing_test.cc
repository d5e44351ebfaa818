// Re-entrant activation checkpointing under DistributedDataParallel: a backward
// within backward, whose hooks fire while the outer one is under way.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class DdpCheckpointing : public DdpTest {};

using LayerFunction = std::function<at::Tensor(const at::Tensor&)>;

// torch.utils.checkpoint with use_reentrant=True: keeps the input alone, and
// computes the function again in backward. `function` must outlive that.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const LayerFunction* function) {
    context->save_for_backward({x});
    context->saved_data["function"] = reinterpret_cast<int64_t>(function);
    return (*function)(x);
  }
  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const auto* function = reinterpret_cast<const LayerFunction*>(
        context->saved_data["function"].toInt());
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor y;
    {
      at::AutoGradMode with_grad(true);
      y = (*function)(x);
    }
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

struct Checkpointed : torch::nn::Module {
  Checkpointed()
      : l1(register_module("l1", torch::nn::Linear(4, 4))),
        l2(register_module("l2", torch::nn::Linear(4, 4))),
        unused(register_module("unused", torch::nn::Linear(2, 2))),
        run_l2([this](const at::Tensor& x) { return l2(x).tanh(); }) {}
  at::Tensor forward(const at::Tensor& x, int times) {
    at::Tensor y = l1(x);
    for (int i = 0; i < times; ++i) y = Checkpoint::apply(y, &run_l2);
    return y;
  }
  torch::nn::Linear l1, l2, unused;
  LayerFunction run_l2;
};

// Two layers with one weight. All is checkpointed as a whole if `times` is 0.
struct SharedWeight : torch::nn::Module {
  SharedWeight()
      : l2(register_module("l2", torch::nn::Linear(4, 4))),
        weight(register_parameter("weight", l2->weight)),
        unused(register_module("unused", torch::nn::Linear(2, 2))),
        run_l2([this](const at::Tensor& x) { return l2(x).tanh(); }),
        run_all([this](const at::Tensor& x) {
          return l2(at::linear(x, weight));
        }) {}
  at::Tensor forward(const at::Tensor& x, int times) {
    if (times == 0) {
      return Checkpoint::apply(x.detach().requires_grad_(), &run_all);
    }
    at::Tensor y = at::linear(x, weight);
    for (int i = 0; i < times; ++i) y = Checkpoint::apply(y, &run_l2);
    return y;
  }
  torch::nn::Linear l2;
  at::Tensor weight;
  torch::nn::Linear unused;
  LayerFunction run_l2, run_all;
};

template <typename M>
absl::Status Train(Communicator& world,
                   const DistributedDataParallelOptions& options, int times) {
  TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<M>(world, options));
  for (int step = 0; step < 5; ++step) {
    TANDEM_RETURN_IF_ERROR(
        BackwardBoth(twins, ExampleInput(step, world), times));
    TANDEM_RETURN_IF_ERROR(
        ExpectMeanGradients(*twins.module, *twins.alone, world));
    ZeroBoth(twins);
  }
  return absl::OkStatus();
}

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

DistributedDataParallelOptions Ignore() {
  DistributedDataParallelOptions options;
  options.parameters_to_ignore = {"unused.weight", "unused.bias"};
  return options;
}

// PyTorch fails with find_unused_parameters: it marks ready what the inner
// graph alone uses.
TEST_P(DdpCheckpointing, ALayerOnce) {
  for (const auto& options : {Ignore(), FindUnused(), StaticGraph()}) {
    OnRanks(2, [&](Communicator& world) {
      return Train<Checkpointed>(world, options, 1);
    });
  }
}

TEST_P(DdpCheckpointing, ALayerTwiceNeedsAStaticGraph) {
  OnRanks(2, [](Communicator& world) {
    return Train<Checkpointed>(world, StaticGraph(), 2);
  });
  for (const auto& options : {Ignore(), FindUnused()}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      const absl::Status status = Train<Checkpointed>(world, options, 2);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("ready twice"), HasSubstr("l2."),
                        HasSubstr("static_graph")));
      return absl::OkStatus();
    });
  }
}

TEST_P(DdpCheckpointing, SharedWeights) {
  for (int times : {1, 2}) {
    OnRanks(2, [&](Communicator& world) {
      return Train<SharedWeight>(world, StaticGraph(), times);
    });
  }
  for (const auto& options : {Ignore(), FindUnused(), StaticGraph()}) {
    OnRanks(2, [&](Communicator& world) {
      return Train<SharedWeight>(world, options, /*times=*/0);
    });
  }
}

// Two forwards, two losses, one backward: never silently wrong.
absl::Status TrainWithTwoLosses(Communicator& world,
                                const DistributedDataParallelOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Checkpointed>(world, options));
  for (int step = 0; step < 4; ++step) {
    const at::Tensor x = ExampleInput(step, world);
    const at::Tensor y = ExampleInput(step + 10, world);
    TANDEM_ASSIGN_OR_RETURN(const auto first, twins.ddp->Forward(x, 1));
    TANDEM_ASSIGN_OR_RETURN(const auto second, twins.ddp->Forward(y, 1));
    TANDEM_RETURN_IF_ERROR(
        twins.ddp->Backward(first.sum().add(second.square().sum())));
    twins.alone->forward(x, 1)
        .sum()
        .add(twins.alone->forward(y, 1).square().sum())
        .backward();
    TANDEM_RETURN_IF_ERROR(
        ExpectMeanGradients(*twins.module, *twins.alone, world));
    ZeroBoth(twins);
  }
  return absl::OkStatus();
}

TEST_P(DdpCheckpointing, SeveralLosses) {
  OnRanks(2, [](Communicator& world) {
    return TrainWithTwoLosses(world, StaticGraph());
  });
  OnRanks(2, [](Communicator& world) -> absl::Status {
    EXPECT_THAT(TrainWithTwoLosses(world, Ignore()).message(),
                HasSubstr("ready twice"));
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpCheckpointing);

}  // namespace
}  // namespace tandem
