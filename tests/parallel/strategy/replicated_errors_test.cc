// What goes wrong in a replica, and how it is told.

#include <ATen/ops/full.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/model/layer_list.h"
#include "core/testing/device_types.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/example_job.h"

namespace tandem::replicated_errors_test {
namespace {

using Body = absl::Status(Communicator&);

void RunRanks(int n, const std::function<Body>& body) {
  const absl::Status status = RunDeviceRanks(n, body);
  EXPECT_TRUE(status.ok()) << status;
}

void ExpectError(const absl::Status& status, absl::StatusCode code,
                 const std::string& part) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
}

class ReplicatedErrorsTest : public DeviceTypeTest {};

TEST_P(ReplicatedErrorsTest, DifferentModelsAreNamedOnEveryRank) {
  RunRanks(3, [](Communicator& world) {
    LayerList layers = PlainModel(3);
    const int64_t classes = world.rank() == 2 ? 4 : kClasses;
    layers[2] = SeededLinear("fc2", 7, classes, 1);
    ExpectError(NewReplicated(std::move(layers), {}, world).status(),
                absl::StatusCode::kInvalidArgument,
                "rank 2 differs from that of rank 0: tensor 2 is fc2.weight: "
                "Float [4, 7] there, fc2.weight: Float [5, 7] on rank 0");
    return absl::OkStatus();
  });
}

// Flat buffers are broadcast as they lie in memory.
TEST_P(ReplicatedErrorsTest, DifferentMemoryLayoutsAreNamed) {
  RunRanks(2, [](Communicator& world) {
    LayerList layers = PlainModel(3);
    at::Tensor weight = Find(NamedParameters(layers), "fc1.weight");
    if (world.rank() == 1) {
      weight.set_data(weight.detach().t().contiguous().t());
    }
    ExpectError(NewReplicated(std::move(layers), {}, world).status(),
                absl::StatusCode::kInvalidArgument,
                "tensor 0 is fc1.weight: Float [7, 6] of strides [1, 7] there");
    return absl::OkStatus();
  });
}

TEST_P(ReplicatedErrorsTest, WrongInputIsAnErrorNotAnException) {
  RunRanks(1, [](Communicator& world) {
    const auto create = [&](LayerList layers, ReplicatedOptions options) {
      return NewReplicated(std::move(layers), options, world);
    };
    ExpectError(create({}, {}).status(), absl::StatusCode::kInvalidArgument,
                "nothing to train");
    ReplicatedOptions options;
    options.clip_norm = -1;
    ExpectError(create(PlainModel(3), options).status(),
                absl::StatusCode::kInvalidArgument, "clip_norm is -1");
    TANDEM_ASSIGN_OR_RETURN(auto strategy, create(PlainModel(3), {}));
    ExpectError(strategy->TrainStep(Batch{}, 0.1).status(),
                absl::StatusCode::kInvalidArgument, "at least one sample");
    Batch wrong = GlobalBatch(0, 4);
    wrong.inputs = wrong.inputs.narrow(1, 0, 3);
    ExpectError(strategy->TrainStep(wrong, 0.1).status(),
                absl::StatusCode::kInvalidArgument, "training step");
    ExpectError(strategy->Evaluate(wrong).status(),
                absl::StatusCode::kInvalidArgument, "evaluation");
    return absl::OkStatus();
  });
}

TEST_P(ReplicatedErrorsTest, ForeignStateIsRefusedAndChangesNothing) {
  RunRanks(1, [](Communicator& world) {
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
    const auto invalid = absl::StatusCode::kInvalidArgument;
    ExpectError(strategy->LoadModelState(missing), invalid, "lacks fc2.bias");
    ExpectError(strategy->LoadModelState(extra), invalid,
                "fc3.weight has no place");
    ExpectError(strategy->LoadModelState(reshaped), invalid,
                "fc2.bias: expected Float [5], got Float [6]");
    EXPECT_EQ(Fingerprint(*strategy), before);
    TANDEM_RETURN_IF_ERROR(strategy->LoadModelState(good));
    EXPECT_TRUE(Find(strategy->Parameters(), "fc1.bias")
                    .cpu()
                    .equal(at::full({7}, 7.)));
    return absl::OkStatus();
  });
}

// As loss.backward() of LibTorch refuses it.
TEST_P(ReplicatedErrorsTest, ALossThatIsCutOffFromTheModelIsRefused) {
  RunRanks(1, [](Communicator& world) {
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
    ExpectError(strategy->TrainStep(GlobalBatch(0, 4), 0.1).status(),
                absl::StatusCode::kInvalidArgument,
                "the loss requires no gradient");
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICE_TYPES(ReplicatedErrorsTest);

}  // namespace
}  // namespace tandem::replicated_errors_test
