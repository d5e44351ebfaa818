// What ConvertSyncBatchNorm replaces, keeps, and refuses by name.

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "models/layers/basic_layers.h"
#include "parallel/activation_checkpointing/checkpoint.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/sync_batch_norm/sync_batch_norm.h"

namespace tandem::convert_test {
namespace {

using torch::nn::BatchNorm1d;
using torch::nn::BatchNorm2d;
using torch::nn::BatchNorm3d;
using torch::nn::Sequential;

void OnTwo(const std::function<absl::Status(Communicator&)>& body) {
  ExpectOk(RunDeviceRanks(2, body));
}

// Ranks get 0 and 2: together their mean is 1.
at::Tensor Apart(const Communicator& world) {
  return at::full({1, 2, 1, 1}, 2 * world.rank(), TestDevice()).to(at::kFloat);
}

struct Block : torch::nn::Module {
  Block() { inner = register_module("inner", Sequential(BatchNorm1d(2))); }
  at::Tensor forward(const at::Tensor& x) { return inner->forward(x); }
  Sequential inner{nullptr};
};

TEST(ConvertTest, ReplacesWhatASequentialHolds) {
  OnTwo([](Communicator& world) -> absl::Status {
    const auto block = std::make_shared<Block>();
    Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 1)),
                   BatchNorm2d(2), BatchNorm3d(3), block);
    net->to(TestDevice());
    net->ptr(2)->eval();
    const auto before = net->named_parameters();
    const auto buffers = net->named_buffers();
    TANDEM_ASSIGN_OR_RETURN(const int converted,
                            ConvertSyncBatchNorm(*net, world));
    EXPECT_EQ(converted, 3);
    // The very same tensors, by the same names.
    const auto after = net->named_parameters();
    EXPECT_EQ(after.keys(), before.keys());
    for (const auto& item : before) {
      EXPECT_TRUE(after[item.key()].is_same(item.value())) << item.key();
    }
    EXPECT_EQ(net->named_buffers().keys(), buffers.keys());
    EXPECT_TRUE(
        net->named_buffers()["1.running_mean"].is_same(buffers[0].value()));
    EXPECT_TRUE(net->ptr(1)->is_training());
    EXPECT_FALSE(net->ptr(2)->is_training());
    // Both ways to the module lead to the new one.
    EXPECT_NE(net->ptr(1)->as<SyncBatchNorm>(), nullptr);
    EXPECT_NE(net->named_children()["1"]->as<SyncBatchNorm>(), nullptr);
    EXPECT_NE(block->inner->ptr(0)->as<SyncBatchNorm>(), nullptr);
    return absl::OkStatus();
  });
}

TEST(ConvertTest, ASequentialNormalisesTogether) {
  OnTwo([](Communicator& world) -> absl::Status {
    Sequential net{BatchNorm2d(2)};
    net->to(TestDevice());
    TANDEM_RETURN_IF_ERROR(ConvertSyncBatchNorm(*net, world).status());
    const at::Tensor y = net->forward(Apart(world));
    EXPECT_NEAR(y[0][0].item<float>(), world.rank() == 0 ? -1 : 1, 1e-4);
    return absl::OkStatus();
  });
}

struct Typed : torch::nn::Module {
  Typed() {
    first = register_module("first", Sequential(BatchNorm2d(2)));
    norm = register_module("norm", BatchNorm2d(2));
  }
  Sequential first{nullptr};
  BatchNorm2d norm{nullptr};
};

struct Outer : torch::nn::Module {
  Outer() { typed = register_module("typed", std::make_shared<Typed>()); }
  std::shared_ptr<Typed> typed;
};

TEST(ConvertTest, NamesAMemberThatItCannotReplaceAndChangesNothing) {
  OnTwo([](Communicator& world) {
    Outer net;
    const auto status = ConvertSyncBatchNorm(net, world).status();
    EXPECT_THAT(
        status,
        InvalidArgument("typed.norm is a torch::nn::BatchNorm2d that is held "
                        "by its type"));
    EXPECT_THAT(status, Says("tandem::SyncableBatchNorm2d"));
    EXPECT_NE(net.typed->first->ptr(0)->as<BatchNorm2d>(), nullptr);
    BatchNorm1d alone(2);
    EXPECT_THAT(ConvertSyncBatchNorm(*alone, world).status(),
                Says("the module itself is a torch::nn::BatchNorm1d"));
    return absl::OkStatus();
  });
}

struct Syncable : torch::nn::Module {
  Syncable() {
    one = register_module("one", SyncableBatchNorm1d(2));
    two = register_module("two", SyncableBatchNorm2d(2));
    three = register_module("three", SyncableBatchNorm3d(2));
  }
  SyncableBatchNorm1d one{nullptr};
  SyncableBatchNorm2d two{nullptr};
  SyncableBatchNorm3d three{nullptr};
};

TEST(ConvertTest, MembersThatAreSyncableGetTheGroup) {
  OnTwo([](Communicator& world) -> absl::Status {
    Syncable net;
    BatchNorm2d plain(2);
    net.to(TestDevice());
    plain->to(TestDevice());
    const at::Tensor x = at::randn({3, 2, 2, 2}).to(TestDevice());
    EXPECT_TRUE(at::equal(net.two->forward(x), plain->forward(x)));
    EXPECT_TRUE(at::equal(net.two->running_var, plain->running_var));
    TANDEM_ASSIGN_OR_RETURN(const int converted,
                            ConvertSyncBatchNorm(net, world));
    EXPECT_EQ(converted, 3);
    const at::Tensor mine = Apart(world);
    const float expected = world.rank() == 0 ? -1 : 1;
    for (const at::Tensor& y :
         {net.one->forward(mine.view({1, 2})), net.two->forward(mine),
          net.three->forward(mine.unsqueeze(-1))}) {
      EXPECT_NEAR(y.flatten()[0].item<float>(), expected, 1e-4);
    }
    EXPECT_ANY_THROW(net.two->forward(mine[0]));
    return absl::OkStatus();
  });
}

TEST(ConvertTest, AModuleOfTwoPlacesStaysOne) {
  OnTwo([](Communicator& world) -> absl::Status {
    BatchNorm2d shared(2);
    Sequential net(shared, torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 1)),
                   shared);
    TANDEM_ASSIGN_OR_RETURN(const int converted,
                            ConvertSyncBatchNorm(*net, world));
    EXPECT_EQ(converted, 1);
    EXPECT_EQ(net->ptr(0), net->ptr(2));
    return absl::OkStatus();
  });
}

TEST(ConvertTest, LayersAreConvertedWhereTheyAre) {
  OnTwo([](Communicator& world) -> absl::Status {
    const LayerList layers = {BatchNorm2dLayer("norm", 2).make(0),
                              FlattenLayer("flatten").make(0)};
    layers[0].module->to(TestDevice());
    TANDEM_ASSIGN_OR_RETURN(const int converted,
                            ConvertSyncBatchNorm(layers, world));
    EXPECT_EQ(converted, 1);
    const at::Tensor y = layers[0].forward(Apart(world));
    EXPECT_NEAR(y[0][0].item<float>(), world.rank() == 0 ? -1 : 1, 1e-4);
    return absl::OkStatus();
  });
}

// SyncBatchNorm in functions that are computed again in backward: the same
// bits, and no collective a second time, which other ranks would have to meet.

constexpr int64_t kChannels = 3;
constexpr int kRanks = 3;

using Layers = torch::nn::Sequential;
using Tensors = std::vector<at::Tensor>;

Layers MakeNet(Communicator& group) {
  const torch::nn::BatchNormOptions options(kChannels);
  Layers net(SyncBatchNorm(options, group), torch::nn::Tanh(),
             SyncBatchNorm(options, group));
  net->to(TestDevice());
  return net;
}

enum class Way { kPlain, kAsOne, kInTurn, kNested };

at::Tensor Forward(Layers& first, Layers& second, const at::Tensor& x, Way way,
                   const CheckpointOptions& options) {
  auto both = [first, second](const at::Tensor& input) mutable {
    return second->forward(first->forward(input));
  };
  switch (way) {
    case Way::kPlain:
      return both(x);
    case Way::kAsOne:
      return Checkpoint(options, both, x);
    case Way::kInTurn:
      return Checkpoint(options, second, Checkpoint(options, first, x));
    case Way::kNested:
      return Checkpoint(
          options,
          [first, second, options](const at::Tensor& input) mutable {
            return second->forward(Checkpoint(options, first, input));
          },
          x);
  }
  return at::Tensor();
}

// Gradients and buffers after a step; rank r has r samples.
absl::StatusOr<Tensors> Step(Communicator& world, Way way,
                             const CheckpointOptions& options) {
  return CatchTorchOr([&] {
    Layers first = MakeNet(world), second = MakeNet(world);
    const at::Tensor x = at::randn({world.rank(), kChannels, 2},
                                   GeneratorFor(3, world.rank() ? "b" : "a"))
                             .to(TestDevice())
                             .requires_grad_();
    Forward(first, second, x, way, options).square().sum().backward();
    Tensors all = {x.grad()};
    for (const Layers& net : {first, second}) {
      for (const at::Tensor& each : net->parameters()) {
        all.push_back(each.grad());
      }
      for (const at::Tensor& each : net->buffers()) all.push_back(each);
    }
    return all;
  });
}

TEST(ComputedAgainTest, HasTheBitsOfTheFirstPass) {
  for (const bool use_reentrant : {false, true}) {
    CheckpointOptions options;
    options.use_reentrant = use_reentrant;
    for (const Way way : {Way::kAsOne, Way::kInTurn, Way::kNested}) {
      SCOPED_TRACE(static_cast<int>(way));
      ExpectOk(RunDeviceRanks(kRanks, [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(const Tensors plain,
                                Step(world, Way::kPlain, options));
        TANDEM_ASSIGN_OR_RETURN(const Tensors found, Step(world, way, options));
        EXPECT_EQ(found.size(), plain.size());
        for (size_t i = 0; i < plain.size(); ++i) {
          EXPECT_TRUE(at::equal(found[i], plain[i])) << i;
        }
        return absl::OkStatus();
      }));
    }
  }
}

// PyTorch's test_c10d_common.py: SyncBatchNorm with empty inputs, on some ranks
// and on all, wrapped by DistributedDataParallel.

using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Sequential;

class EmptyBatchesTest : public DeviceTypesAnd<int> {};

Sequential Net() {
  return Sequential(
      Conv2d(Conv2dOptions(2, 3, 3).padding(1)), torch::nn::BatchNorm2d(3),
      Conv2d(Conv2dOptions(3, 2, 3).padding(1)), torch::nn::BatchNorm2d(2));
}

// Rank 0's batch has no samples; in the last step nobody's has.
TEST_P(EmptyBatchesTest, NothingIsEverNaN) {
  ExpectOk(RunDeviceRanks(value(), [](Communicator& world) -> absl::Status {
    Sequential net = Net();
    net->to(TestDevice());
    TANDEM_ASSIGN_OR_RETURN(const int converted,
                            ConvertSyncBatchNorm(*net, world));
    EXPECT_EQ(converted, 2);
    TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(net, world));
    for (int step = 0; step < 4; ++step) {
      SCOPED_TRACE(step);
      const bool has = world.rank() > 0 && step < 3;
      ddp->ZeroGrad();
      const at::Tensor x = at::rand({has ? 1 : 0, 2, 11, 13}).to(TestDevice());
      const at::Tensor leaf = x.requires_grad_();
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor y, ddp->Forward(leaf));
      EXPECT_EQ(y.size(0), x.size(0));
      EXPECT_FALSE(at::isnan(y).any().item<bool>());
      TANDEM_RETURN_IF_ERROR(ddp->Backward(y.sum()));
      EXPECT_FALSE(at::isnan(leaf.grad()).any().item<bool>());
      for (const auto& item : net->named_parameters()) {
        EXPECT_TRUE(item.value().grad().defined()) << item.key();
        EXPECT_FALSE(at::isnan(item.value().grad()).any().item<bool>())
            << item.key();
      }
      for (const auto& item : net->named_buffers()) {
        EXPECT_FALSE(at::isnan(item.value()).any().item<bool>()) << item.key();
      }
    }
    // What nobody had any of is no batch.
    EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 3);
    return absl::OkStatus();
  }));
}

TANDEM_ON_DEVICE_TYPES_AND(EmptyBatchesTest, testing::Values(2, 3, 7));

}  // namespace
}  // namespace tandem::convert_test
