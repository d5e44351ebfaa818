// DistributedDataParallel's mixed_precision, on modules that know nothing of
// it.

#include <ATen/ops/ones.h>

#include <string>

#include "core/precision/autocast.h"
#include "core/precision/mixed_precision.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::mixed_precision_ddp_test {
namespace {

class MixedPrecisionDdpTest : public DdpTest {
 protected:
  static DistributedDataParallelOptions Bf16() {
    DistributedDataParallelOptions options;
    options.mixed_precision.param_dtype = at::kBFloat16;
    return options;
  }
};

struct WithTable : torch::nn::Module {
  WithTable()
      : linear(register_module("linear", torch::nn::Linear(4, 4))),
        table(register_buffer("table", at::ones({4}))) {}
  at::Tensor forward(const at::Tensor& x) { return linear(x) + table; }

  torch::nn::Linear linear;
  at::Tensor table;
};

TEST_P(MixedPrecisionDdpTest, ForwardIsAutocastsAndGradientsAreFloat) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, Bf16()));
    for (int step = 0; step < 2; ++step) {
      const at::Tensor input = ExampleInput(step, world);
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                              twins.ddp->Forward(input, true, true));
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
      TANDEM_RETURN_IF_ERROR(twins.ddp->Backward(output.to(at::kFloat).sum()));
      at::Tensor alone;
      {
        const AutocastGuard guard(TestDevice().type(), at::kBFloat16);
        alone = twins.alone->forward(input, true, true);
      }
      EXPECT_TRUE(output.equal(alone));
      alone.to(at::kFloat).sum().backward();
      TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
      for (const at::Tensor& parameter : twins.module->parameters()) {
        EXPECT_EQ(parameter.scalar_type(), at::kFloat);
        EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
      }
      ZeroBoth(twins);
    }
    return absl::OkStatus();
  });
}

TEST_P(MixedPrecisionDdpTest, GradientsTravelAsTheHookHasThem) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.mixed_precision.reduce_dtype = at::kBFloat16;
    TANDEM_ASSIGN_OR_RETURN(auto reduced, MakeTwins<TwoLinear>(world, options));
    EXPECT_THAT(reduced.ddp->register_comm_hook(AllReduceHook()),
                Says("mixed_precision.reduce_dtype is a communication hook"));
    TANDEM_ASSIGN_OR_RETURN(auto hooked, MakeTwins<TwoLinear>(world));
    TANDEM_RETURN_IF_ERROR(hooked.ddp->register_comm_hook(Bf16CompressHook()));
    const at::Tensor input = ExampleInput(0, world);
    TANDEM_RETURN_IF_ERROR(BackwardBoth(reduced, input, true, true));
    TANDEM_RETURN_IF_ERROR(BackwardBoth(hooked, input, true, true));
    const auto expected = hooked.module->parameters();
    const auto found = reduced.module->parameters();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(found[i].grad().equal(expected[i].grad()));
    }
    return absl::OkStatus();
  });
}

TEST_P(MixedPrecisionDdpTest, BuffersAreCast) {
  OnRanks(1, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.mixed_precision.buffer_dtype = at::kBFloat16;
    const auto module = NewModule<WithTable>();
    TANDEM_ASSIGN_OR_RETURN(
        auto ddp, MakeDistributedDataParallel(module, world, options));
    EXPECT_EQ(module->table.scalar_type(), at::kBFloat16);
    EXPECT_EQ(module->linear->weight.scalar_type(), at::kFloat);
    return absl::OkStatus();
  });
}

TEST_P(MixedPrecisionDdpTest, OtherDtypesAreRefused) {
  OnRanks(1, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.mixed_precision.param_dtype = at::kDouble;
    EXPECT_THAT(
        MakeDistributedDataParallel(NewModule<TwoLinear>(), world, options)
            .status(),
        Says("mixed_precision.param_dtype is Double: expected"));
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(MixedPrecisionDdpTest);

}  // namespace
}  // namespace tandem::mixed_precision_ddp_test
