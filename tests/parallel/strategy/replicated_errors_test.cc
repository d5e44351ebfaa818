// What goes wrong in a replica, and how it is told.

#include <ATen/ops/full.h>

#include <string>
#include <utility>

#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/model/layer_list.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/example_job.h"

namespace tandem::replicated_errors_test {
namespace {

class ReplicatedErrorsTest : public DeviceTypeTest {};

TEST_P(ReplicatedErrorsTest, DifferentModelsAreNamedOnEveryRank) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) {
    LayerList layers = PlainModel(3);
    const int64_t classes = world.rank() == 2 ? 4 : kClasses;
    layers[2] = SeededLinear("fc2", 7, classes, 1);
    EXPECT_THAT(
        NewReplicated(std::move(layers), {}, world).status(),
        InvalidArgument(
            "rank 2 differs from that of rank 0: tensor 2 is fc2.weight: "
            "Float [4, 7] there, fc2.weight: Float [5, 7] on rank 0"));
    return absl::OkStatus();
  }));
}

// Flat buffers are broadcast as they lie in memory.
TEST_P(ReplicatedErrorsTest, DifferentMemoryLayoutsAreNamed) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) {
    LayerList layers = PlainModel(3);
    at::Tensor weight = Find(NamedParameters(layers), "fc1.weight");
    if (world.rank() == 1) {
      weight.set_data(weight.detach().t().contiguous().t());
    }
    EXPECT_THAT(
        NewReplicated(std::move(layers), {}, world).status(),
        InvalidArgument(
            "tensor 0 is fc1.weight: Float [7, 6] of strides [1, 7] there"));
    return absl::OkStatus();
  }));
}

TEST_P(ReplicatedErrorsTest, WrongInputIsAnErrorNotAnException) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& world) {
    const auto create = [&](LayerList layers, ReplicatedOptions options) {
      return NewReplicated(std::move(layers), options, world);
    };
    EXPECT_THAT(create({}, {}).status(), InvalidArgument("nothing to train"));
    ReplicatedOptions options;
    options.clip_norm = -1;
    EXPECT_THAT(create(PlainModel(3), options).status(),
                InvalidArgument("clip_norm is -1"));
    TANDEM_ASSIGN_OR_RETURN(auto strategy, create(PlainModel(3), {}));
    EXPECT_THAT(strategy->TrainStep(Batch{}, 0.1).status(),
                InvalidArgument("at least one sample"));
    Batch wrong = GlobalBatch(0, 4);
    wrong.inputs = wrong.inputs.narrow(1, 0, 3);
    EXPECT_THAT(strategy->TrainStep(wrong, 0.1).status(),
                InvalidArgument("training step"));
    EXPECT_THAT(strategy->Evaluate(wrong).status(),
                InvalidArgument("evaluation"));
    return absl::OkStatus();
  }));
}

TEST_P(ReplicatedErrorsTest, ForeignStateIsRefusedAndChangesNothing) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& world) {
    TANDEM_ASSIGN_OR_RETURN(auto strategy,
                            NewReplicated(PlainModel(3), {}, world));
    const std::string before = Fingerprint(*strategy);
    NamedTensors good;
    for (const auto& [name, tensor] : strategy->Parameters()) {
      good.emplace_back(name, at::full(tensor.sizes(), 7.));
    }
    NamedTensors missing = good;
    missing.pop_back();
    NamedTensors extra = good;
    extra.emplace_back("fc3.weight", at::full({1}, 1.));
    NamedTensors reshaped = good;
    reshaped[3].second = at::full({6}, 1.);
    EXPECT_THAT(strategy->LoadModelState(missing),
                InvalidArgument("lacks fc2.bias"));
    EXPECT_THAT(strategy->LoadModelState(extra),
                InvalidArgument("fc3.weight has no place"));
    EXPECT_THAT(strategy->LoadModelState(reshaped),
                InvalidArgument("fc2.bias: expected Float [5], got Float [6]"));
    EXPECT_EQ(Fingerprint(*strategy), before);
    TANDEM_RETURN_IF_ERROR(strategy->LoadModelState(good));
    EXPECT_TRUE(Find(strategy->Parameters(), "fc1.bias")
                    .cpu()
                    .equal(at::full({7}, 7.)));
    return absl::OkStatus();
  }));
}

// As loss.backward() of LibTorch refuses it.
TEST_P(ReplicatedErrorsTest, ALossThatIsCutOffFromTheModelIsRefused) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& world) {
    const auto detached = [](const at::Tensor& outputs,
                             const at::Tensor& targets) {
      LossResult result = CrossEntropy(outputs, targets);
      result.loss = result.loss.detach();
      return result;
    };
    ReplicatedOptions options;
    options.device = TestDevice();
    TANDEM_ASSIGN_OR_RETURN(
        auto strategy, MakeReplicated(PlainModel(3), detached, options, world));
    EXPECT_THAT(strategy->TrainStep(GlobalBatch(0, 4), 0.1).status(),
                InvalidArgument("the loss requires no gradient"));
    return absl::OkStatus();
  }));
}

TANDEM_ON_DEVICE_TYPES(ReplicatedErrorsTest);

}  // namespace
}  // namespace tandem::replicated_errors_test
