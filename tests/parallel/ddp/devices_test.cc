// DistributedDataParallel around a module that lies on two devices of its rank:
// each device has a flat buffer, and all has the bits of the module on one
// device.

#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/stored_tensors.h"
#include "core/device/own_stream.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/ddp/logging.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::devices_test {
namespace {

// There and back: backward comes to the devices in turn.
struct Net : torch::nn::Module {
  Net(c10::Device first, c10::Device second)
      : in(register_module("in", torch::nn::Linear(4, 6))),
        left(register_module("left", torch::nn::Linear(6, 6))),
        right(register_module("right", torch::nn::Linear(6, 6))),
        out(register_module("out", torch::nn::Linear(6, 3))),
        there(first, second),
        back(second, first) {
    for (auto* each : {&in, &out}) (*each)->to(first);
    for (auto* each : {&left, &right}) (*each)->to(second);
    FillModule(*this);
  }
  at::Tensor forward(const at::Tensor& x, bool use_right) {
    at::Tensor y = left(there.Copy(in(x).tanh())).tanh();
    if (use_right) y = y.add(right(y).tanh());
    return out(back.Copy(y)).square();
  }
  torch::nn::Linear in, left, right, out;
  CopyChannel there, back;
};

// A replica and its optimizer.
struct Job {
  std::shared_ptr<Net> net;
  std::unique_ptr<DistributedDataParallel<std::shared_ptr<Net>>> ddp;
  std::unique_ptr<Optimizer> optimizer;
};

using Options = DistributedDataParallelOptions;

absl::StatusOr<Job> MakeJob(c10::Device second, const Options& options,
                            Communicator& world,
                            const CommunicationHook& hook = nullptr) {
  Job job;
  job.net = std::make_shared<Net>(TestDevice(), second);
  TANDEM_ASSIGN_OR_RETURN(job.ddp,
                          MakeDistributedDataParallel(job.net, world, options));
  if (hook) TANDEM_RETURN_IF_ERROR(job.ddp->register_comm_hook(hook));
  TANDEM_ASSIGN_OR_RETURN(
      job.optimizer, MakeOptimizer(AdamOptions{}, job.ddp->flat_buffers()));
  return job;
}

void ExpectSame(const at::Tensor& actual, const at::Tensor& expected,
                const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!actual.defined()) return;
  EXPECT_TRUE(actual.cpu().equal(expected.cpu())) << what;
}

void ExpectSame(const Net& actual, const Net& expected,
                const std::string& when) {
  const auto others = expected.named_parameters();
  for (const auto& each : actual.named_parameters()) {
    const at::Tensor& other = others[each.key()];
    ExpectSame(each->detach(), other.detach(), each.key() + when);
    ExpectSame(each->grad(), other.grad(), "gradient of " + each.key() + when);
  }
}

void ExpectSame(const NamedTensors& actual, const NamedTensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : actual) {
    bool found = false;
    for (const auto& [other, value] : expected) {
      if (other != name) continue;
      found = true;
      ExpectSame(tensor, value, name);
    }
    EXPECT_TRUE(found) << name;
  }
}

// By step and rank: whether `right` is used.
using Use = std::function<bool(int step, int rank)>;
bool Always(int /*step*/, int /*rank*/) { return true; }

// Two microbatches, of which the last averages; clips and steps.
absl::StatusOr<double> Step(Job& job, int step, const Use& use,
                            Communicator& world) {
  job.ddp->ZeroGrad();
  const bool use_right = use(step, world.rank());
  for (const bool last : {false, true}) {
    const auto backward = [&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(
          const at::Tensor y,
          job.ddp->Forward(ExampleInput(2 * step + last, world), use_right));
      return job.ddp->Backward(y.sum());
    };
    if (last) {
      TANDEM_RETURN_IF_ERROR(backward());
    } else {
      const auto guard = job.ddp->no_sync();
      TANDEM_RETURN_IF_ERROR(backward());
    }
  }
  TANDEM_ASSIGN_OR_RETURN(
      const double norm,
      ClipGradientNorm(job.ddp->flat_buffers(), ClipNormOptions{0.3, 2}));
  job.optimizer->Step(0.1);
  return norm;
}

// Two ranks: a sum of two has the same bits in whatever order.
absl::Status TrainBoth(const Options& options, const Use& use,
                       Communicator& world,
                       CommunicationHook (*hook)() = nullptr) {
  const auto make_hook = [&] {
    return hook == nullptr ? CommunicationHook() : hook();
  };
  TANDEM_ASSIGN_OR_RETURN(Job two,
                          MakeJob(TestDevice(1), options, world, make_hook()));
  TANDEM_ASSIGN_OR_RETURN(Job one,
                          MakeJob(TestDevice(0), options, world, make_hook()));
  for (int step = 0; step < 5; ++step) {
    TANDEM_ASSIGN_OR_RETURN(const double norm, Step(two, step, use, world));
    TANDEM_ASSIGN_OR_RETURN(const double expected, Step(one, step, use, world));
    EXPECT_EQ(norm, expected) << "step " << step;
    ExpectSame(*two.net, *one.net, " after step " + std::to_string(step));
  }
  ExpectSame(two.optimizer->State(), one.optimizer->State());
  EXPECT_TRUE(two.ddp->logging_data().has_rebuilt_buckets);
  return absl::OkStatus();
}

class DdpDevices : public DdpTest {};

TEST_P(DdpDevices, EachDeviceHasABufferOfItsOwn) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(Job job, MakeJob(TestDevice(1), {}, world));
    std::set<std::string> devices;
    for (const auto& buffer : job.ddp->flat_buffers()) {
      EXPECT_EQ(buffer->grads().device(), buffer->values().device());
      devices.insert(buffer->values().device().str());
    }
    EXPECT_EQ(devices.size(), job.ddp->flat_buffers().size());
    EXPECT_TRUE(IsOn(job.net->right->weight, TestDevice(1)));
    TANDEM_RETURN_IF_ERROR(Step(job, 0, Always, world).status());
    EXPECT_TRUE(IsOn(job.net->right->weight.grad(), TestDevice(1)));
    EXPECT_TRUE(IsOn(job.net->out->weight.grad(), TestDevice(0)));
    return absl::OkStatus();
  });
}

TEST_P(DdpDevices, TrainWithTheBitsOfOneDevice) {
  Options small;
  small.bucket_cap_mb = 1e-6;
  Options fixed;
  fixed.static_graph = true;
  for (const Options& options : {Options(), small, fixed}) {
    OnRanks(2, [&](Communicator& world) {
      return TrainBoth(options, Always, world);
    });
  }
}

TEST_P(DdpDevices, UnusedParametersOfTheSecondDevice) {
  Options find;
  find.find_unused_parameters = true;
  find.bucket_cap_mb = 1e-6;
  const std::vector<Use> uses = {
      [](int, int) { return false; },
      [](int step, int rank) { return step % 2 == 1 && rank == 1; },
      [](int step, int) { return step % 2 == 1; }};
  for (const Use& use : uses) {
    OnRanks(2,
            [&](Communicator& world) { return TrainBoth(find, use, world); });
  }
  Options fixed;
  fixed.static_graph = true;
  OnRanks(2, [&](Communicator& world) {
    return TrainBoth(
        fixed, [](int, int rank) { return rank == 1; }, world);
  });
}

TEST_P(DdpDevices, AnUnusedParameterOfTheSecondDeviceIsNamed) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(Job job, MakeJob(TestDevice(1), {}, world));
    const absl::Status status =
        Step(
            job, 0, [](int, int) { return false; }, world)
            .status();
    EXPECT_THAT(status, InvalidArgument("right.weight"));
    return absl::OkStatus();
  });
}

TEST_P(DdpDevices, HooksSeeBucketsOfOneDeviceEach) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    std::set<std::string> devices;
    std::set<std::string> names;
    const CommunicationHook mean = AllReduceHook();
    TANDEM_ASSIGN_OR_RETURN(
        Job job, MakeJob(TestDevice(1), {}, world,
                         [&](const GradBucket& bucket, Communicator& group) {
                           devices.insert(bucket.buffer.device().str());
                           names.insert(bucket.names.begin(),
                                        bucket.names.end());
                           for (const at::Tensor& each : bucket.parameters) {
                             EXPECT_EQ(each.device(), bucket.buffer.device());
                           }
                           return mean(bucket, group);
                         }));
    TANDEM_RETURN_IF_ERROR(Step(job, 0, Always, world).status());
    EXPECT_EQ(devices.size(), job.ddp->flat_buffers().size());
    EXPECT_EQ(names.size(), 8u);
    return absl::OkStatus();
  });
  for (auto* hook : {AllReduceHook, Fp16CompressHook, Bf16CompressHook}) {
    OnRanks(2, [&](Communicator& world) {
      return TrainBoth({}, Always, world, hook);
    });
  }
}

TEST_P(DdpDevices, OptimizerStateOfOneDeviceServesTwo) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(Job one, MakeJob(TestDevice(0), {}, world));
    for (int step = 0; step < 3; ++step) {
      TANDEM_RETURN_IF_ERROR(Step(one, step, Always, world).status());
    }
    TANDEM_ASSIGN_OR_RETURN(Job two, MakeJob(TestDevice(1), {}, world));
    {
      const at::NoGradGuard no_grad;
      const auto values = one.net->named_parameters();
      for (auto& each : two.net->named_parameters()) {
        each.value().copy_(values[each.key()]);
      }
    }
    NamedTensors saved;  // as a checkpoint gives it
    for (const auto& [name, tensor] : one.optimizer->State()) {
      saved.emplace_back(name, tensor.cpu());
    }
    TANDEM_RETURN_IF_ERROR(two.optimizer->LoadState(saved));
    for (int step = 3; step < 6; ++step) {
      TANDEM_RETURN_IF_ERROR(Step(one, step, Always, world).status());
      TANDEM_RETURN_IF_ERROR(Step(two, step, Always, world).status());
      ExpectSame(*two.net, *one.net, " after step " + std::to_string(step));
    }
    ExpectSame(two.optimizer->State(), one.optimizer->State());
    return absl::OkStatus();
  });
}

// Autograd's thread of one device starts buckets of the other's, and must see
// on which stream those gradients are made.
TEST_P(DdpDevices, WorkOnStreamsOfTheUsersOwn) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    std::vector<OwnStream> own;
    std::vector<c10::Stream> streams;
    for (int i : {0, 1}) {
      own.push_back(NewStream(TestDevice(i)));
      if (own.back() == nullptr) return absl::OkStatus();  // it works without
      streams.push_back(*own.back());
    }
    const c10::MultiStreamGuard guard(streams);
    for (int again = 0; again < 4; ++again) {
      Options small;
      small.bucket_cap_mb = 1e-6;
      TANDEM_RETURN_IF_ERROR(TrainBoth(small, Always, world));
    }
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpDevices);

}  // namespace
}  // namespace tandem::devices_test
