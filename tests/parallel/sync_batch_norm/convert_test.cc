// What ConvertSyncBatchNorm replaces, keeps, and refuses by name.

#include "parallel/sync_batch_norm/convert.h"

#include <ATen/Functions.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <memory>
#include <string>

#include "core/base/status_macros.h"
#include "core/model/make_layers.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/layers/basic_layers.h"
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

}  // namespace
}  // namespace tandem::convert_test
