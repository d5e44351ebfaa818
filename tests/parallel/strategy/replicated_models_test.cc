// Models whose layers share something, in replicas: what training by hand
// gives.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/random/sample_scope.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/registry.h"
#include "parallel/strategy/replicated.h"

namespace tandem::replicated_models_test {
namespace {

constexpr int kSteps = 3;
constexpr int64_t kSamples = 6;  // of the global batch
constexpr uint64_t kSeed = 4;
constexpr double kRate = 0.05;

using State = std::map<std::string, at::Tensor>;

State Copied(const NamedTensors& tensors) {
  State state;
  for (const auto& [name, tensor] : tensors) {
    state[name] = tensor.detach().cpu().clone();
  }
  return state;
}

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
  // Of the global batch, samples [first, first + size).
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

  State TrainByHand() const {
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
    return Copied(NamedParameters(layers));
  }

  State TrainInReplicas(int ranks, int64_t accumulation_steps) const {
    State state;
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
      if (world.rank() == 0) state = Copied(strategy->Parameters());
      return absl::OkStatus();
    };
    ExpectOk(RunDeviceRanks(ranks, body));
    return state;
  }
};

TEST_P(ReplicatedModelsTest, TrainAsByHand) {
  const State expected = TrainByHand();
  const State before = Copied(NamedParameters(Make()));
  for (const auto& [ranks, parts] :
       std::vector<std::pair<int, int64_t>>{{1, 1}, {1, 3}, {2, 1}, {3, 2}}) {
    const State actual = TrainInReplicas(ranks, parts);
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

}  // namespace
}  // namespace tandem::replicated_models_test
