// What is kept in replicas from one forward to the next, and what is copied.

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/parallel/data_parallel.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/data_parallel.h"
#include "tests/parallel/data_parallel/fixture.h"

namespace tandem::replicas_test {
namespace {

using NormPointer = std::shared_ptr<NormNet>;

// A large weight, which is copied by itself, and small ones.
struct WideNet : torch::nn::Cloneable<WideNet> {
  WideNet() { reset(); }
  void reset() override {
    wide = register_module("wide", torch::nn::Linear(5, 2000));
    narrow = register_module("narrow", torch::nn::Linear(2000, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return narrow(wide(x)); }
  torch::nn::Linear wide{nullptr}, narrow{nullptr};
};

class ReplicasTest : public DataParallelTest {};

TEST_P(ReplicasTest, LieOnTheirDevices) {
  const NormPointer net = NewNet<NormNet>(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  ValueOf(parallel->Forward(InputOf(8, 4, 0, devices()[0])));
  ASSERT_EQ(parallel->replicas().size(), devices().size());
  for (size_t i = 0; i < devices().size(); ++i) {
    for (const auto& each : parallel->replicas()[i]->named_parameters()) {
      EXPECT_TRUE(IsOn(*each, devices()[i])) << each.key();
      ExpectSameBits(*each, net->named_parameters()[each.key()], each.key());
      // Its own memory, but for the first.
      EXPECT_EQ(each->is_alias_of(net->named_parameters()[each.key()]), i == 0);
    }
    for (const auto& each : parallel->replicas()[i]->named_buffers()) {
      EXPECT_TRUE(IsOn(*each, devices()[i])) << each.key();
    }
  }
}

constexpr int64_t kWide = 2000 * 5 * 8;  // bytes of the first weight
constexpr int64_t kAll = kWide + (2000 + 2000 * 3 + 3) * 8;

// Forward and backward of a module, and how much they copy to each replica.
class Counted {
 public:
  Counted(DataParallelOptions options, bool counts_all_writes)
      : net(NewNet<WideNet>(options.device_ids[0])),
        others_(static_cast<int64_t>(options.device_ids.size()) - 1),
        x_(InputOf(8, 5, 0, options.device_ids[0])) {
    options.counts_all_writes = counts_all_writes;
    parallel = ValueOf(MakeDataParallel(net, options));
  }
  int64_t Forward() {
    const int64_t before = parallel->bytes_copied();
    outputs = ValueOf(parallel->Forward(x_));
    return (parallel->bytes_copied() - before) / others_;
  }
  int64_t Both() {
    const int64_t copied = Forward();
    outputs.sum().backward();
    return copied;
  }

  std::shared_ptr<WideNet> net;
  std::unique_ptr<DataParallel<std::shared_ptr<WideNet>>> parallel;
  at::Tensor outputs;

 private:
  const int64_t others_;
  const at::Tensor x_;
};

TEST_P(ReplicasTest, AreKeptAndWhereWritesAreCountedOnlyWhatChangedIsCopied) {
  for (const bool counts : {false, true}) {
    Counted counted(options(), counts);
    const at::Tensor& member =
        counted.parallel->replicas().back()->wide->weight;
    const auto* const impl = member.unsafeGetTensorImpl();
    const at::NoGradGuard no_grad;
    EXPECT_EQ(counted.Forward(), kAll);
    EXPECT_EQ(counted.Forward(), counts ? 0 : kAll);
    counted.net->wide->weight.mul_(2);
    EXPECT_EQ(counted.Forward(), counts ? kWide : kAll);
    EXPECT_EQ(counted.Forward(), counts ? 0 : kAll);
    counted.net->narrow->bias.mul_(2);
    EXPECT_EQ(counted.Forward(), counts ? 3 * 8 : kAll);
    EXPECT_EQ(counted.Forward(), counts ? 0 : kAll);
    EXPECT_EQ(member.unsafeGetTensorImpl(), impl);  // the same tensor
  }
}

// An optimizer may have stepped past the version counters, unless none does.
TEST_P(ReplicasTest, AccumulationCopiesOnceWhereWritesAreCounted) {
  Counted counted(options(), /*counts_all_writes=*/true);
  EXPECT_EQ(counted.Both(), kAll);
  EXPECT_EQ(counted.Both(), 0);
  EXPECT_EQ(counted.Both(), 0);
  Counted suspected(options(), /*counts_all_writes=*/false);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(suspected.Both(), kAll);
}

// Whichever way the gradient came, and whenever the optimizer makes use of it.
TEST_P(ReplicasTest, AStepPastTheCountersIsSeen) {
  const auto net = NewNet<TwiceNet>(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const at::Tensor x = InputOf(8, 5, 0, devices()[0]);
  const auto check = [&](const std::string& when) {
    ExpectClose(ValueOf(parallel->Forward(x)), net->forward(x), when);
  };
  check("at first");
  net->scale.mutable_grad() = at::ones_like(net->scale);
  optimizer.step();
  check("after a step with a gradient that was set");
  optimizer.zero_grad();
  check("without gradients");
  ValueOf(parallel->Forward(x)).square().sum().backward();
  check("after backward");
  check("once more");
  optimizer.step();
  optimizer.zero_grad();
  check("after a step that came late");
  ValueOf(parallel->Forward(x)).square().sum().backward();
  optimizer.step();
  optimizer.zero_grad();
  check("after a step and its end");
}

// By who has said that all writes are counted; else it is seen without.
TEST_P(ReplicasTest, AChangeThatIsNotCountedMayBeNoted) {
  for (const bool counts : {false, true}) {
    const auto net = NewNet<TwiceNet>(devices()[0]);
    DataParallelOptions changed_options = options();
    changed_options.counts_all_writes = counts;
    const auto parallel = ValueOf(MakeDataParallel(net, changed_options));
    const at::Tensor x = InputOf(8, 5, 0, devices()[0]);
    const at::NoGradGuard no_grad;
    ValueOf(parallel->Forward(x));
    net->in->weight.data().mul_(2);
    if (counts) parallel->NoteChange();
    ExpectClose(ValueOf(parallel->Forward(x)), net->forward(x), "noted");
    net->in->weight.data().mul_(2);
    net->eval();  // weights are exchanged with the mode
    ExpectClose(ValueOf(parallel->Forward(x)), net->forward(x),
                "with the mode");
  }
}

// A smaller batch has fewer devices: the others follow later.
TEST_P(ReplicasTest, ReplicasThatAreLeftOutFollowLater) {
  const auto net = NewNet<TwiceNet>(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const at::Tensor x = InputOf(2 * value(), 5, 0, devices()[0]);
  for (int step = 0; step < 3; ++step) {
    ValueOf(parallel->Forward(x)).square().sum().backward();
    optimizer.step();
    const at::NoGradGuard no_grad;
    ValueOf(parallel->Forward(x.narrow(0, 0, 2)));
    net->zero_grad();
    ValueOf(parallel->Forward(x.narrow(0, 0, 2)));
    ExpectClose(ValueOf(parallel->Forward(x)), net->forward(x),
                "step " + std::to_string(step));
  }
}

// A replica that writes to its own parameter has the module's again.
TEST_P(ReplicasTest, AReplicasOwnChangeIsUndone) {
  const auto net = NewNet<WideNet>(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  const at::Tensor x = InputOf(8, 5, 0, devices()[0]);
  const at::NoGradGuard no_grad;
  const at::Tensor before = ValueOf(parallel->Forward(x));
  parallel->replicas().back()->wide->weight.mul_(2);
  ExpectSameBits(ValueOf(parallel->Forward(x)), before, "outputs");
}

// The first part of the batch is what the first replica sees.
TEST_P(ReplicasTest, TheFirstReplicasBuffersAreKept) {
  const NormPointer net = NewNet<NormNet>(devices()[0]);
  const NormPointer alone = NewNet<NormNet>(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = InputOf(12, 4, step, devices()[0]);
    ValueOf(parallel->Forward(x));
    alone->forward(x.chunk(value())[0]);
    ExpectSameBits(net->norm->running_mean, alone->norm->running_mean, "mean");
    ExpectSameBits(net->norm->running_var, alone->norm->running_var, "var");
    EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), step + 1);
  }
}

// LibTorch's own data_parallel, whose replicas are clones (pytorch #21144).
TEST_P(ReplicasTest, LibTorchsReplicasLoseTheirBuffers) {
  const NormPointer net = NewNet<NormNet>(devices()[0]);
  const at::Tensor before = net->norm->running_mean.clone();
  const auto clones = torch::nn::parallel::replicate(net, devices());
  clones[0]->forward(InputOf(12, 4, 0, devices()[0]));
  ExpectSameBits(net->norm->running_mean, before, "mean");
}

// In evaluation outputs show the buffers.
TEST_P(ReplicasTest, OtherReplicasBuffersFollow) {
  const NormPointer net = NewNet<NormNet>(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  const at::Tensor x = InputOf(12, 4, 5, devices()[0]);
  for (int step = 0; step < 3; ++step) {
    net->train();
    ValueOf(parallel->Forward(InputOf(12, 4, step, devices()[0])));
    net->eval();
    ExpectClose(ValueOf(parallel->Forward(x)), net->forward(x), "outputs");
    for (const auto& replica : parallel->replicas()) {
      EXPECT_FALSE(replica->norm->is_training());
      ExpectSameBits(replica->norm->running_var, net->norm->running_var, "var");
    }
  }
}

// Past the version counters, as a kernel may.
TEST_P(ReplicasTest, BuffersFollowWhoeverWroteToThem) {
  const NormPointer net = NewNet<NormNet>(devices()[0]);
  net->eval();
  const auto parallel = Wrapped(net, devices());
  const at::Tensor x = InputOf(12, 4, 5, devices()[0]);
  for (int again = 0; again < 2; ++again) {
    ExpectClose(ValueOf(parallel->Forward(x)), net->forward(x), "outputs");
    net->norm->running_var.data().mul_(2);
  }
}

TEST_P(ReplicasTest, ModesOfSubmodulesFollow) {
  const NormPointer net = NewNet<NormNet>(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  net->norm->eval();  // a frozen norm in a module that trains
  const at::Tensor mean = net->norm->running_mean.clone();
  const at::Tensor x = InputOf(12, 4, 5, devices()[0]);
  ExpectClose(ValueOf(parallel->Forward(x)), net->forward(x), "outputs");
  ExpectSameBits(net->norm->running_mean, mean, "mean");
  for (const auto& replica : parallel->replicas()) {
    EXPECT_TRUE(replica->is_training());
    EXPECT_FALSE(replica->norm->is_training());
  }
}

// BatchNorm's backward does not need what the next forward writes.
TEST_P(ReplicasTest, BuffersOfTwoForwardsBeforeBackward) {
  const NormPointer net = NewNet<NormNet>(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  const at::Tensor a =
      ValueOf(parallel->Forward(InputOf(12, 4, 0, devices()[0])));
  const at::Tensor b =
      ValueOf(parallel->Forward(InputOf(12, 4, 1, devices()[0])));
  (a.square().sum() + b.square().sum()).backward();
  EXPECT_TRUE(net->in->weight.grad().defined());
}

TEST_P(ReplicasTest, AModuleHolder) {
  torch::nn::Sequential net(torch::nn::Linear(4, 6), torch::nn::Linear(6, 2));
  torch::nn::Sequential alone(torch::nn::Linear(4, 6), torch::nn::Linear(6, 2));
  for (auto* each : {&net, &alone}) {
    (*each)->to(at::kDouble);
    FillModule(**each);
    (*each)->to(devices()[0]);
  }
  const auto parallel = Wrapped(net, devices());
  const at::Tensor x = InputOf(7, 4, 0, devices()[0]);
  ValueOf(parallel->Forward(x)).square().sum().backward();
  alone->forward(x).square().sum().backward();
  ExpectModule(*net, *alone, false, "of a holder");
}

// The output's graph keeps what it needs.
TEST_P(ReplicasTest, BackwardOutlivesTheWrapper) {
  const NormPointer net = NewNet<NormNet>(devices()[0]);
  const NormPointer alone = NewNet<NormNet>(devices()[0]);
  const at::Tensor x = InputOf(8, 4, 0, devices()[0]);
  for (const NormPointer& each : {net, alone}) each->norm->eval();
  const at::Tensor outputs = ValueOf(RunDataParallel(net, options(), x));
  outputs.square().sum().backward();
  alone->forward(x).square().sum().backward();
  ExpectModule(*net, *alone, false, "of one forward");
}

// PyTorch's test_data_parallel_model_no_refcycles.
TEST_P(ReplicasTest, NothingIsLeftOfThem) {
  auto net = NewNet<NormNet>(devices()[0]);
  auto parallel = Wrapped(net, devices());
  ValueOf(parallel->Forward(InputOf(8, 4, 0, devices()[0])))
      .square()
      .sum()
      .backward();
  std::vector<std::weak_ptr<NormNet>> all(parallel->replicas().begin(),
                                          parallel->replicas().end());
  all.push_back(net);
  const std::weak_ptr<NormNet> last = parallel->replicas().back();
  const c10::weak_intrusive_ptr<c10::TensorImpl> weight(
      last.lock()->in->weight.getIntrusivePtr());
  parallel.reset();
  net.reset();
  for (const auto& each : all) EXPECT_TRUE(each.expired());
  // Devices' threads let go of it when their work is done.
  for (int i = 0; i < 1000 && !weight.expired(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(weight.expired());
}

// PyTorch's test_save_replica_module (#37182).
TEST_P(ReplicasTest, AReplicaMayBeSaved) {
  if (!devices()[0].is_cpu()) return;
  const torch::nn::Linear net(4, 2);
  const auto parallel = Wrapped(net, devices());
  ValueOf(parallel->Forward(at::ones({8, 4})));
  std::stringstream file;
  torch::save(parallel->replicas().back(), file);
  torch::nn::Linear loaded(4, 2);
  torch::load(loaded, file);
  ExpectSameBits(loaded->weight, net->weight, "weight");
}

TANDEM_ON_SEVERAL(ReplicasTest);

}  // namespace
}  // namespace tandem::replicas_test
