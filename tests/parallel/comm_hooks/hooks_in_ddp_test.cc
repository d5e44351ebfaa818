// Communication hooks and parameter averaging under DistributedDataParallel.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/max.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "core/model/layer_list.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/parameter_averaging.h"
#include "parallel/ddp/reducer.h"
#include "tests/parallel/strategy/example_job.h"

namespace tandem::hooks_in_ddp_test {
namespace {

using Ddp = DistributedDataParallel<LayerList>;
constexpr int kSteps = 5;
constexpr double kRate = 0.2;

// Buckets of one parameter or two, so that several hooks run in one backward,
// and buckets are rebuilt.
DistributedDataParallelOptions SmallBuckets() {
  DistributedDataParallelOptions options;
  options.bucket_cap_mb = 1e-4;
  return options;
}

absl::StatusOr<std::unique_ptr<Ddp>> MakeDdp(Communicator& world,
                                             CommunicationHook hook) {
  TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(
                                        PlainModel(3), world, SmallBuckets()));
  if (hook) TANDEM_RETURN_IF_ERROR(ddp->register_comm_hook(std::move(hook)));
  return ddp;
}

// Gradients of this rank's share of a step's batch, averaged as the hook does.
absl::Status Backward(int step, Communicator& world, Ddp& ddp) {
  const Batch batch = Share(GlobalBatch(step, 6 * world.size()), world);
  ddp.ZeroGrad();
  TANDEM_ASSIGN_OR_RETURN(at::Tensor outputs,
                          ddp.Forward(batch.inputs.to(TestDevice())));
  return ddp.Backward(
      CrossEntropy(outputs, batch.targets.to(TestDevice())).loss);
}

void Descend(const LayerList& model) {
  at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : NamedParameters(model)) {
    parameter.sub_(parameter.grad() * kRate);
  }
}

absl::Status ExpectAlike(Communicator& world, const LayerList& model,
                         bool alike = true) {
  bool same = true;
  for (const auto& [name, parameter] : NamedParameters(model)) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> all,
                            world.AllGather(parameter.detach()));
    for (const at::Tensor& each : all) same = same && each.equal(all[0]);
  }
  if (same == alike) return absl::OkStatus();
  return absl::InternalError(same ? "ranks are alike" : "ranks differ");
}

// Parameters after kSteps steps with this hook, the same on all ranks.
NamedTensors Trained(int n, const std::function<CommunicationHook()>& make) {
  NamedTensors trained;
  const absl::Status status =
      RunDeviceRanks(n, [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDdp(world, make()));
        for (int step = 0; step < kSteps; ++step) {
          TANDEM_RETURN_IF_ERROR(Backward(step, world, *ddp));
          Descend(ddp->module());
          TANDEM_RETURN_IF_ERROR(ExpectAlike(world, ddp->module()));
        }
        EXPECT_TRUE(ddp->reducer().buckets().is_rebuilt());
        EXPECT_GT(ddp->reducer().buckets().size(), 1u);
        if (world.rank() == 0) {
          trained = DetachedCopies(NamedParameters(ddp->module()));
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
  return trained;
}

NamedTensors TrainedWithoutHook(int n) {
  return Trained(n, [] { return CommunicationHook(); });
}

void ExpectNear(const NamedTensors& actual, const NamedTensors& expected,
                double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_TRUE(at::allclose(Find(actual, name), tensor, /*rtol=*/0, tolerance))
        << name;
  }
}

class HooksInDdpTest : public DeviceTypeTest {};

TEST_P(HooksInDdpTest, AllReduceHookChangesNoBit) {
  for (int n : {1, 2, 3, 7}) {
    ExpectNear(Trained(n, AllReduceHook), TrainedWithoutHook(n), 0);
  }
}

TEST_P(HooksInDdpTest, HalfPrecisionHooksStayCloseAndReplicasAlike) {
  for (int n : {1, 2, 3, 7}) {
    const NamedTensors expected = TrainedWithoutHook(n);
    ExpectNear(Trained(n, Fp16CompressHook), expected, 2e-3);
    ExpectNear(Trained(n, Bf16CompressHook), expected, 2e-2);
  }
}

CommunicationHook FullRankPowerSgd() {
  PowerSgdOptions options;
  options.matrix_approximation_rank = 7;
  options.start_power_sgd_iter = 1;
  options.min_compression_rate = 0.1;
  return PowerSgd::Create(options)->Hook();
}

CommunicationHook PowerSgdOfRank1() {
  PowerSgdOptions options;
  options.start_power_sgd_iter = 0;
  options.min_compression_rate = 1;
  return PowerSgd::Create(options)->Hook();
}

// With as many columns as the gradients have, nothing is lost.
TEST_P(HooksInDdpTest, PowerSgdTrains) {
  for (int n : {1, 2, 3, 7}) {
    const NamedTensors expected = TrainedWithoutHook(n);
    ExpectNear(Trained(n, FullRankPowerSgd), expected, 1e-5);
    const NamedTensors compressed = Trained(n, PowerSgdOfRank1);
    ExpectNear(compressed, expected, 0.3);
    EXPECT_FALSE(at::allclose(Find(compressed, "fc1.weight"),
                              Find(expected, "fc1.weight"), 0, 1e-3));
    ExpectNear(
        Trained(n, [] { return Fp16CompressWrapper(FullRankPowerSgd()); }),
        expected, 1e-2);
  }
}

// What hooks are promised: index order, the end of backward told, every
// parameter once, and collectives of their own.
TEST_P(HooksInDdpTest, AUsersOwnHookSeesEveryBucketInOrder) {
  const int n = 3;
  ExpectOk(RunDeviceRanks(n, [&](Communicator& world) -> absl::Status {
    std::vector<int64_t> started, finished;
    std::map<std::string, int> seen;
    bool last = false;
    // The greatest of the ranks' gradients, from rank 1 on 0, and so on.
    const CommunicationHook hook = [&](const GradBucket& bucket,
                                       Communicator& group) {
      started.push_back(bucket.index);
      last = bucket.is_last;
      for (size_t i = 0; i < bucket.names.size(); ++i) {
        ++seen[bucket.names[i]];
        EXPECT_EQ(bucket.gradients[i].sizes(), bucket.parameters[i].sizes());
        EXPECT_TRUE(bucket.gradients[i].is_alias_of(bucket.buffer));
      }
      return FinishReduction([&, bucket]() -> absl::Status {
        finished.push_back(bucket.index);
        TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> all,
                                group.AllGather(bucket.buffer));
        for (const at::Tensor& each : all) {
          bucket.buffer.copy_(at::max(bucket.buffer, each));
        }
        return absl::OkStatus();
      });
    };
    TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDdp(world, hook));
    TANDEM_ASSIGN_OR_RETURN(
        auto alone, MakeDdp(world, [](const auto&, auto&) {
          return FinishReduction([] { return absl::OkStatus(); });
        }));
    for (int step = 0; step < 3; ++step) {
      started.clear(), finished.clear(), seen.clear();
      TANDEM_RETURN_IF_ERROR(Backward(step, world, *ddp));
      TANDEM_RETURN_IF_ERROR(Backward(step, world, *alone));
      const size_t buckets = ddp->reducer().buckets().size();
      EXPECT_EQ(started.size(), buckets);
      EXPECT_TRUE(last);
      for (size_t b = 0; b < started.size(); ++b) {
        EXPECT_EQ(started[b], static_cast<int64_t>(b));
      }
      EXPECT_EQ(finished, started);
      const NamedTensors parameters = NamedParameters(ddp->module());
      const NamedTensors others = NamedParameters(alone->module());
      for (const auto& [name, parameter] : parameters) {
        EXPECT_EQ(seen[name], 1) << name;
        TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> all,
                                world.AllGather(Find(others, name).grad()));
        at::Tensor greatest = all[0];
        for (const at::Tensor& each : all) greatest = at::max(greatest, each);
        EXPECT_TRUE(parameter.grad().equal(greatest)) << name;
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(HooksInDdpTest, AHooksErrorNamesTheBucketItsParametersAndTheStep) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        auto ddp, MakeDdp(world, [](const GradBucket& bucket, auto&) {
          const bool fails = bucket.index == 1;
          return FinishReduction([fails] {
            return fails ? absl::AbortedError("no more") : absl::OkStatus();
          });
        }));
    const absl::Status failed = Backward(0, world, *ddp);
    EXPECT_EQ(failed.code(), absl::StatusCode::kAborted);
    for (const char* part : {"bucket 1", "fc1.", "step 1", "no more"}) {
      EXPECT_THAT(failed, Says(part));
    }
    return absl::OkStatus();
  }));
}

// Post-local SGD: averaged gradients first, then averaged parameters.
TEST_P(HooksInDdpTest, ParametersAreAveragedEveryFewSteps) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDdp(world, nullptr));
    TANDEM_ASSIGN_OR_RETURN(
        auto averager,
        PeriodicParameterAverager::Create({/*period=*/3, /*warmup_steps=*/2}));
    for (int step = 0; step < 8; ++step) {
      const bool warms_up = averager.in_warmup();
      const bool averages = averager.averages_now();
      if (warms_up) {
        TANDEM_RETURN_IF_ERROR(Backward(step, world, *ddp));
      } else {
        const NoSyncGuard no_sync = ddp->no_sync();
        TANDEM_RETURN_IF_ERROR(Backward(step, world, *ddp));
      }
      Descend(ddp->module());
      TANDEM_RETURN_IF_ERROR(averager.AfterStep(ddp->flat_buffers(), world));
      EXPECT_EQ(averages, step == 2 || step == 5);
      TANDEM_RETURN_IF_ERROR(
          ExpectAlike(world, ddp->module(), warms_up || averages));
    }
    TANDEM_RETURN_IF_ERROR(AverageParameters(ddp->flat_buffers(), world));
    return ExpectAlike(world, ddp->module());
  }));
}

TANDEM_ON_DEVICE_TYPES(HooksInDdpTest);

}  // namespace
}  // namespace tandem::hooks_in_ddp_test
