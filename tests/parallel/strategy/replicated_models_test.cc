// Models whose layers share something, in replicas: what training by hand
// gives.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/context/compute_context.h"
#include "core/model/layer_list.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "models/layers/dropout.h"
#include "models/registry.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/example_job.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::replicated_models_test {
namespace {

constexpr int kSteps = 3;
constexpr int64_t kSamples = 6;  // of the global batch
constexpr uint64_t kSeed = 4;
constexpr double kRate = 0.05;

class ReplicatedModelsTest : public testing::TestWithParam<const char*> {
 protected:
  bool takes_tokens() const {
    return std::string(GetParam()).substr(0, 3) == "gpt";
  }
  LayerList Make() const {
    ModelOptions options = {GetParam(), {2, 7, 6}, 5};
    if (takes_tokens()) options = {GetParam(), {9}, 256, true};
    return MakeLayers(MakeModel(options).value(), kSeed);
  }
  // Samples [first, first + size) of the global batch.
  Batch BatchOf(int step, int64_t first, int64_t size) const {
    Batch all;
    all.size = size;
    if (takes_tokens()) {
      all.inputs = ((at::arange(kSamples * 9, at::kLong) * 7 + step) % 256)
                       .view({-1, 9});
      all.targets = (all.inputs + 1) % 256;
    } else {
      all.inputs = (at::linspace(-1, 1, kSamples * 84) * (50 + step))
                       .sin()
                       .view({-1, 2, 7, 6});
      all.targets = (at::arange(kSamples, at::kLong) + step) % 5;
    }
    all.inputs = all.inputs.narrow(0, first, size);
    all.targets = all.targets.narrow(0, first, size);
    return all;
  }

  TensorsByName TrainByHand() const {
    const LayerList layers = Make();
    for (int step = 0; step < kSteps; ++step) {
      const Batch batch = BatchOf(step, 0, kSamples);
      const SampleScope scope({kSeed, step, /*first=*/0});
      CrossEntropy(Forward(layers, batch.inputs), batch.targets)
          .loss.backward();
      const at::NoGradGuard no_grad;
      for (const auto& [name, parameter] : NamedParameters(layers)) {
        at::Tensor each = parameter;
        if (!each.grad().defined()) continue;  // tied, and done
        each.sub_(each.grad(), kRate);
        each.mutable_grad().reset();
      }
    }
    return CopiesOf(NamedParameters(layers));
  }

  TensorsByName TrainInReplicas(int ranks, int64_t accumulation_steps) const {
    TensorsByName state;
    const auto body = [&](Communicator& world) -> absl::Status {
      ReplicatedOptions options;
      options.seed = kSeed;
      options.accumulation_steps = accumulation_steps;
      options.device = TestDevice();
      TANDEM_ASSIGN_OR_RETURN(
          const auto strategy,
          MakeReplicated(Make(), CrossEntropy, options, world));
      const int64_t size = kSamples / world.size();
      for (int step = 0; step < kSteps; ++step) {
        const Batch batch = BatchOf(step, world.rank() * size, size);
        TANDEM_RETURN_IF_ERROR(strategy->TrainStep(batch, kRate).status());
      }
      if (world.rank() == 0) state = CopiesOf(strategy->Parameters());
      return absl::OkStatus();
    };
    ExpectOk(RunDeviceRanks(ranks, body));
    return state;
  }
};

TEST_P(ReplicatedModelsTest, TrainAsByHand) {
  const TensorsByName expected = TrainByHand();
  const TensorsByName before = CopiesOf(NamedParameters(Make()));
  for (const auto& [ranks, parts] :
       std::vector<std::pair<int, int64_t>>{{1, 1}, {1, 3}, {2, 1}, {3, 2}}) {
    const TensorsByName actual = TrainInReplicas(ranks, parts);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      EXPECT_TRUE(actual.at(name).allclose(tensor, 1e-4, 1e-6))
          << name << " with " << ranks << " ranks, " << parts << " parts";
      EXPECT_FALSE(actual.at(name).equal(before.at(name))) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ReplicatedModelsTest,
                         testing::Values("gpt_tiny_tied", "mlp_dropout",
                                         "unet_tiny"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// Layers that draw random numbers, in replicas: what a sample draws depends on
// the sample and the step alone.

constexpr int kDropoutSteps = 4;
constexpr int64_t kDropoutSamples = 12;  // of the global batch

LayerList DropoutModel() {
  LayerList layers = PlainModel(3);
  layers.insert(layers.begin() + 1, DropoutLayer("drop", 0.4).make(0));
  return layers;
}

struct Training {
  int ranks = 1;
  int64_t accumulation_steps = 1;
  uint64_t seed = 5;
  int resume_at = 0;  // stop there, and go on with a new strategy
};

class ReplicatedDropoutTest : public DeviceTypeTest {
 protected:
  // Rank 0's parameters after kDropoutSteps.
  static NamedTensors TrainedParameters(const Training& run) {
    NamedTensors parameters;
    const auto body = [&](Communicator& world) -> absl::Status {
      ReplicatedOptions options;
      options.accumulation_steps = run.accumulation_steps;
      options.seed = run.seed;
      TANDEM_ASSIGN_OR_RETURN(auto strategy,
                              NewReplicated(DropoutModel(), options, world));
      for (int step = 0; step < kDropoutSteps; ++step) {
        if (step > 0 && step == run.resume_at) {
          const NamedTensors state = DetachedCopies(strategy->Parameters());
          TANDEM_ASSIGN_OR_RETURN(
              strategy, NewReplicated(DropoutModel(), options, world));
          TANDEM_RETURN_IF_ERROR(strategy->LoadModelState(state));
          strategy->ResumeAt(step);
        }
        const Batch batch = Share(GlobalBatch(step, kDropoutSamples), world);
        TANDEM_RETURN_IF_ERROR(strategy->TrainStep(batch, 0.5).status());
      }
      if (world.rank() == 0) {
        parameters = DetachedCopies(strategy->Parameters());
      }
      return absl::OkStatus();
    };
    ExpectOk(RunDeviceRanks(run.ranks, body));
    return parameters;
  }

  static bool Close(const NamedTensors& a, const NamedTensors& b) {
    bool close = a.size() == b.size() && !a.empty();
    for (size_t i = 0; close && i < a.size(); ++i) {
      close = at::allclose(a[i].second, b[i].second, 1e-4, 1e-5);
    }
    return close;
  }
};

TEST_P(ReplicatedDropoutTest, AnyNumberOfRanksDrawsTheSame) {
  const NamedTensors alone = TrainedParameters({});
  EXPECT_TRUE(Close(TrainedParameters({/*ranks=*/2}), alone));
  EXPECT_TRUE(Close(TrainedParameters({/*ranks=*/3}), alone));
}

TEST_P(ReplicatedDropoutTest, GradientAccumulationDrawsTheSame) {
  const NamedTensors alone = TrainedParameters({});
  EXPECT_TRUE(Close(TrainedParameters({1, /*accumulation_steps=*/3}), alone));
  EXPECT_TRUE(Close(TrainedParameters({2, /*accumulation_steps=*/2}), alone));
}

TEST_P(ReplicatedDropoutTest, AnotherSeedDrawsOthers) {
  EXPECT_FALSE(
      Close(TrainedParameters({1, 1, /*seed=*/6}), TrainedParameters({})));
}

TEST_P(ReplicatedDropoutTest, AResumedJobDrawsAsIfItHadNotStopped) {
  EXPECT_TRUE(Close(TrainedParameters({2, 1, 5, /*resume_at=*/2}),
                    TrainedParameters({2})));
}

TANDEM_ON_DEVICE_TYPES(ReplicatedDropoutTest);

// What goes wrong in a replica, and how it is told.

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

// LibTorch's loss.backward() refuses it, too.
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
}  // namespace tandem::replicated_models_test
