// Graphs that DistributedDataParallel must refuse, and what it says of them:
// each rank that is wrong names its parameters, and every other rank fails too
// instead of waiting.

#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::graph_errors_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

TEST_P(DdpGraphErrors, StaticGraphMayNotUseMore) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.static_graph = true;
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
    const absl::Status status =
        Train(twins, world, 3, [](int step) { return step == 2; });
    EXPECT_THAT(status, InvalidArgument("b.weight", "static_graph"));
    return absl::OkStatus();
  });
}

TEST_P(DdpGraphErrors, StaticGraphMayNotUseLess) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.static_graph = true;
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
    const absl::Status status =
        Train(twins, world, 3, [](int step) { return step < 2; });
    EXPECT_THAT(status, InvalidArgument("b.weight", "static_graph"));
    return absl::OkStatus();
  });
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
}  // namespace tandem::graph_errors_test
