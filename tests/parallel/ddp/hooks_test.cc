// A user's own communication hook under DistributedDataParallel.

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/device/own_stream.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/ddp/reducer.h"
#include "parallel/ddp/reducer_buckets.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::hooks_test {
namespace {

class DdpHooks : public DdpTest {};

// Puts twos where the gradients were, and exchanges nothing.
absl::StatusOr<FinishReduction> Twos(const GradBucket& bucket,
                                     Communicator& /*group*/) {
  return [bucket] {
    bucket.buffer.fill_(2);
    return absl::OkStatus();
  };
}

// The mean, with some arithmetic after the sum.
absl::StatusOr<FinishReduction> SumThenDivide(const GradBucket& bucket,
                                              Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective sum,
                          group.StartAllReduceSum(bucket.buffer));
  auto pending = std::make_shared<PendingCollective>(std::move(sum));
  return [pending, bucket, size = group.size()]() -> absl::Status {
    TANDEM_RETURN_IF_ERROR(pending->Wait());
    bucket.buffer.mul_(2).div_(2 * size);
    return absl::OkStatus();
  };
}

TEST_P(DdpHooks, WhatTheHookLeavesIsTheGradient) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
    TANDEM_RETURN_IF_ERROR(twins.ddp->register_comm_hook(Twos));
    for (int step = 0; step < 3; ++step) {
      TANDEM_RETURN_IF_ERROR(
          BackwardBoth(twins, ExampleInput(step, world), true, true));
      for (const at::Tensor& parameter : twins.module->parameters()) {
        EXPECT_TRUE(parameter.grad().cpu().equal(at::full({4, 4}, 2.)));
      }
      ZeroBoth(twins);
    }
    return absl::OkStatus();
  });
}

// The second iteration is synchronised, the first is not.
TEST_P(DdpHooks, GradientsThatAccumulatedGoThroughTheHookOnce) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
    TANDEM_RETURN_IF_ERROR(twins.ddp->register_comm_hook(SumThenDivide));
    for (int step = 0; step < 4; ++step) {
      {
        const auto guard = twins.ddp->no_sync();
        TANDEM_RETURN_IF_ERROR(
            BackwardBoth(twins, ExampleInput(2 * step, world), true, true));
      }
      EXPECT_TRUE(
          twins.module->a->weight.grad().equal(twins.alone->a->weight.grad()));
      TANDEM_RETURN_IF_ERROR(
          BackwardBoth(twins, ExampleInput(2 * step + 1, world), true, true));
      TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
    }
    return absl::OkStatus();
  });
}

TEST_P(DdpHooks, SeeEveryParameterInOneBucketAndInIndexOrder) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.bucket_cap_mb = 1e-6;  // one parameter each
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world, options));
    std::vector<GradBucket> seen;
    TANDEM_RETURN_IF_ERROR(twins.ddp->register_comm_hook(
        [&](const GradBucket& bucket, Communicator& group) {
          seen.push_back(bucket);
          return SumThenDivide(bucket, group);
        }));
    TANDEM_RETURN_IF_ERROR(
        BackwardBoth(twins, ExampleInput(0, world), true, true));
    EXPECT_EQ(seen.size(), 2u);
    for (size_t i = 0; i < seen.size(); ++i) {
      EXPECT_EQ(seen[i].index, static_cast<int64_t>(i));
      EXPECT_EQ(seen[i].is_last, i + 1 == seen.size());
      EXPECT_EQ(seen[i].names.size(), 1u);
      EXPECT_EQ(seen[i].gradients[0].sizes(), seen[i].parameters[0].sizes());
    }
    EXPECT_EQ(seen[0].names[0], "b.weight");  // ready first
    EXPECT_EQ(seen[1].names[0], "a.weight");
    return ExpectMeanGradients(twins, world);
  });
}

TEST_P(DdpHooks, AreRegisteredOnceAndMustBeCallable) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
    EXPECT_EQ(twins.ddp->register_comm_hook(nullptr).code(),
              absl::StatusCode::kInvalidArgument);
    TANDEM_RETURN_IF_ERROR(twins.ddp->register_comm_hook(Twos));
    const absl::Status second = twins.ddp->register_comm_hook(Twos);
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition) << second;
    return absl::OkStatus();
  });
}

TEST_P(DdpHooks, CannotBeRegisteredAfterTheFirstStep) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
    TANDEM_RETURN_IF_ERROR(
        BackwardBoth(twins, ExampleInput(0, world), true, true));
    EXPECT_EQ(twins.ddp->register_comm_hook(Twos).code(),
              absl::StatusCode::kFailedPrecondition);
    return absl::OkStatus();
  });
}

// On the rank whose hook fails backward says so; no other waits for ever.
TEST_P(DdpHooks, ErrorOfAHookIsThatOfBackward) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoLinear>(world));
    TANDEM_RETURN_IF_ERROR(twins.ddp->register_comm_hook(
        [&](const GradBucket& bucket,
            Communicator& group) -> absl::StatusOr<FinishReduction> {
          if (world.rank() == 1) return absl::DataLossError("hook of mine");
          return SumThenDivide(bucket, group);
        }));
    absl::Status status =
        BackwardBoth(twins, ExampleInput(0, world), true, true);
    // What streams wait for the host learns here.
    if (status.ok()) status = world.Synchronize();
    EXPECT_FALSE(status.ok());
    if (world.rank() == 1) {
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kDataLoss, "hook of mine"));
    }
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpHooks);

// Buckets and the streams on which gradients are computed.

class GradientStreamsTest : public DeviceTypeTest {};

// Five steps on streams of the user's own. Autograd has a thread for each
// device, which knows nothing of the streams of others: here `b` becomes ready
// on one, and starts the bucket of `a`, whose gradient is still computed on
// another.
absl::Status TrainOnStreams(Communicator& group) {
  std::vector<OwnStream> own;
  std::vector<std::vector<c10::Stream>> streams(2);
  for (int i : {0, 1}) {
    own.push_back(NewStream(TestDevice(i)));
    if (own.back() != nullptr) streams[i].push_back(*own.back());
  }
  NamedTensors parameters;
  FlatBuffers flat;
  std::unique_ptr<Reducer> reducer;
  {
    const c10::MultiStreamGuard first(streams[0]);
    const c10::MultiStreamGuard second(streams[1]);
    for (int i : {1, 0}) {
      parameters.emplace_back(
          i == 1 ? "a" : "b",
          at::ones({16}, TestDevice(i)).requires_grad_(true));
    }
    flat = MakeFlatBuffers(parameters);
    std::vector<FlatBuffer*> buffers;
    for (const auto& each : flat) buffers.push_back(each.get());
    ReducerOptions options;
    options.buckets.limits = {64};
    reducer = std::make_unique<Reducer>(buffers, group, options);
  }
  for (int step = 0; step < 5; ++step) {
    const auto compute = [&](int position, int operations) {
      for (const auto& each : flat) {
        for (size_t i = 0; i < each->slots().size(); ++i) {
          if (each->slots()[i].position == position) {
            each->set_has_gradient(i, true);
          }
        }
      }
      at::Tensor gradient = parameters[position].second.grad();
      gradient.fill_(step + group.rank());
      for (int i = 0; i < operations; ++i) gradient.add_(1);
      reducer->MarkReady(position);
    };
    {
      const c10::MultiStreamGuard guard(streams[1]);
      compute(0, 100);
    }
    {
      const c10::MultiStreamGuard guard(streams[0]);
      compute(1, 0);
    }
    TANDEM_RETURN_IF_ERROR(reducer->Finish());
    for (int position : {0, 1}) {
      EXPECT_TRUE(parameters[position].second.grad().cpu().equal(
          at::full({16}, step + 0.5 + (position == 0 ? 100 : 0))))
          << parameters[position].first << " in step " << step;
    }
    for (const auto& each : flat) each->ZeroGrad();
  }
  return absl::OkStatus();
}

TEST_P(GradientStreamsTest, ABucketOfAnotherDeviceWaitsForItsGradients) {
  ExpectOk(RunDeviceRanks(2, TrainOnStreams));
}

TANDEM_ON_DEVICE_TYPES(GradientStreamsTest);

}  // namespace
}  // namespace tandem::hooks_test
