// Buffers, evaluation, saved state: what DistributedDataParallel does beside
// averaging gradients.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/flight/dump.h"
#include "gtest/gtest.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/core/testing/recorded_flights.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::buffers_test {
namespace {

class DdpBuffers : public DdpTest {};

struct WithBuffer : torch::nn::Module {
  WithBuffer()
      : fc(register_module("fc", torch::nn::Linear(4, 4))),
        norm(register_module("norm", torch::nn::BatchNorm1d(4))),
        count(register_buffer("count", at::full({2}, 0.))) {}
  at::Tensor forward(const at::Tensor& x) { return norm(fc(x)).square(); }
  torch::nn::Linear fc;
  torch::nn::BatchNorm1d norm;
  at::Tensor count;
};

TEST_P(DdpBuffers, AreRank0sBeforeEachForward) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<WithBuffer>(world));
    for (int step = 1; step < 4; ++step) {
      twins.module->count.add_(world.rank() + 1);
      const at::Tensor x = ExampleInput(step, world);
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor output, twins.ddp->Forward(x));
      EXPECT_EQ(twins.module->count[1].item<double>(), step);
      // Each rank goes on from rank 0's statistics with its own batch.
      EXPECT_EQ(twins.module->norm->num_batches_tracked.item<int64_t>(), step);
      TANDEM_RETURN_IF_ERROR(twins.ddp->Backward(output.sum()));
    }
    return absl::OkStatus();
  });
}

// What the recorder has noted of broadcasts, by purpose, while `run` runs.
std::map<std::string, int> BroadcastsIn(const std::function<void()>& run) {
  std::map<std::string, int> broadcasts;
  for (const FlightEntry& each : RecordedFlights(run).entries) {
    if (each.operation == "broadcast") ++broadcasts[each.what];
  }
  return broadcasts;
}

// Forwards that no backward follows have such broadcasts, too.
TEST_P(DdpBuffers, AreWhatABroadcastIsFor) {
  const auto broadcasts = [this](int forwards) {
    return BroadcastsIn([this, forwards] {
      OnRanks(2, [forwards](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<WithBuffer>(world));
        for (int step = 0; step < forwards; ++step) {
          const at::Tensor x = ExampleInput(step, world);
          TANDEM_RETURN_IF_ERROR(twins.ddp->Forward(x).status());
        }
        return absl::OkStatus();
      });
    });
  };
  const std::map<std::string, int> before = broadcasts(0);
  EXPECT_EQ(before.count("buffers"), 0u);
  // On each rank one of floats and one of whole numbers.
  std::map<std::string, int> expected = before;
  expected["buffers"] = 2 * 2 * 3;
  EXPECT_EQ(broadcasts(3), expected);
}

TEST_P(DdpBuffers, StayEachRanksOwnWithoutBroadcastBuffers) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.broadcast_buffers = false;
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<WithBuffer>(world, options));
    for (int step = 1; step < 4; ++step) {
      twins.module->count.add_(world.rank() + 1);
      const at::Tensor x = ExampleInput(step, world);
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, x));
      EXPECT_EQ(twins.module->count[1].item<double>(),
                step * (world.rank() + 1));
      EXPECT_TRUE(twins.module->norm->running_mean.equal(
          twins.alone->norm->running_mean));
    }
    return ExpectMeanGradients(twins, world);
  });
}

TEST_P(DdpBuffers, MayBeIgnoredAndDifferInShape) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.parameters_to_ignore = {"count"};
    auto module = NewModule<WithBuffer>();
    module->count.set_data(
        at::full({5 + world.rank()}, 1. + world.rank(), TestDevice()));
    TANDEM_ASSIGN_OR_RETURN(
        auto ddp, MakeDistributedDataParallel(module, world, options));
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                            ddp->Forward(ExampleInput(0, world)));
    TANDEM_RETURN_IF_ERROR(ddp->Backward(output.sum()));
    EXPECT_TRUE(module->count.cpu().equal(
        at::full({5 + world.rank()}, 1. + world.rank())));
    return absl::OkStatus();
  });
}

// The broadcast before the second forward must not spoil what the first one
// saved for backward.
TEST_P(DdpBuffers, BatchNormInTwoForwardsBeforeOneBackward) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<WithBuffer>(world));
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = ExampleInput(step, world);
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor first, twins.ddp->Forward(x));
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor second,
                              twins.ddp->Forward(x.mul(2)));
      TANDEM_RETURN_IF_ERROR(
          twins.ddp->Backward(first.mean().add(second.mean())));
      ZeroBoth(twins);
    }
    return absl::OkStatus();
  });
}

// Rank 0 alone evaluates: nobody else would answer.
TEST_P(DdpBuffers, ForwardWithoutGradientsIsNotCollective) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<WithBuffer>(world));
    twins.module->eval();
    twins.alone->eval();
    if (world.rank() == 0) {
      at::NoGradGuard no_grad;
      for (int step = 0; step < 6; ++step) {
        const at::Tensor x = ExampleInput(step, world);
        TANDEM_ASSIGN_OR_RETURN(const at::Tensor output, twins.ddp->Forward(x));
        EXPECT_TRUE(output.equal(twins.alone->forward(x)));
      }
    }
    twins.module->train();
    twins.alone->train();
    const at::Tensor x = ExampleInput(9, world);
    TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, x));
    return ExpectMeanGradients(twins, world);
  });
}

TEST_P(DdpBuffers, ForwardWithoutGradientsInNoSyncLeavesNoTrace) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
    {
      at::NoGradGuard no_grad;
      const auto guard = twins.ddp->no_sync();
      TANDEM_RETURN_IF_ERROR(
          twins.ddp->Forward(ExampleInput(0, world), true, true).status());
    }
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(
          BackwardBoth(twins, ExampleInput(step, world), true, true));
      TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
    }
    return absl::OkStatus();
  });
}

TEST_P(DdpBuffers, InitSyncOffLeavesEachRankItsValues) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.init_sync = false;
    auto module = NewModule<TwoLinear>();
    at::NoGradGuard no_grad;
    module->a->weight.fill_(world.rank() + 1);
    TANDEM_RETURN_IF_ERROR(
        MakeDistributedDataParallel(module, world, options).status());
    EXPECT_EQ(module->a->weight[0][0].item<double>(), world.rank() + 1);
    TANDEM_RETURN_IF_ERROR(MakeDistributedDataParallel(module, world).status());
    EXPECT_EQ(module->a->weight[0][0].item<double>(), 1);
    return absl::OkStatus();
  });
}

// Values written into the module's tensors, such as those of a checkpoint, are
// what training goes on from.
TEST_P(DdpBuffers, TrainingGoesOnFromValuesThatAreCopiedIn) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    std::vector<std::vector<at::Tensor>> ends;
    for (bool reload : {false, true}) {
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
      TANDEM_ASSIGN_OR_RETURN(
          auto optimizer,
          MakeOptimizer(SgdOptions{}, twins.ddp->flat_buffers()));
      for (int step = 0; step < 6; ++step) {
        twins.ddp->ZeroGrad();
        TANDEM_RETURN_IF_ERROR(
            BackwardBoth(twins, ExampleInput(step, world), true, true));
        optimizer->Step(0.1);
        if (step != 2 || !reload) continue;
        at::NoGradGuard no_grad;
        for (at::Tensor& parameter : twins.module->parameters()) {
          const at::Tensor saved = parameter.clone();
          parameter.zero_();
          parameter.copy_(saved);
        }
      }
      ends.push_back(twins.module->parameters());
    }
    for (size_t i = 0; i < ends[0].size(); ++i) {
      EXPECT_TRUE(ends[0][i].equal(ends[1][i]));
    }
    return absl::OkStatus();
  });
}

struct Square : torch::nn::Module {
  Square() : p(register_parameter("p", at::full({}, 3.))) {}
  at::Tensor forward() { return p.square(); }
  at::Tensor p;
};

// Through plain backward(): the gradients are averaged; what they were made of
// is not kept.
TEST_P(DdpBuffers, CreateGraphDoesNoHarm) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    auto module = NewModule<Square>();
    TANDEM_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(module, world));
    for (int step = 0; step < 6; ++step) {
      ddp->ZeroGrad();
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor output, ddp->Forward());
      output.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
      EXPECT_EQ(module->p.grad().item<double>(), 6);
      EXPECT_TRUE(module->p.requires_grad());
    }
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpBuffers);

}  // namespace
}  // namespace tandem::buffers_test
