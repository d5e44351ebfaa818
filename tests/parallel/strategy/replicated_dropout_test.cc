// Layers that draw random numbers, in replicas: what a sample draws depends on
// the sample and the step alone.

#include <ATen/ops/allclose.h>

#include <functional>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/model/layer_list.h"
#include "core/random/sample_scope.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "models/layers/dropout.h"
#include "tests/parallel/strategy/example_job.h"

namespace tandem::replicated_dropout_test {
namespace {

constexpr int kSteps = 4;
constexpr int64_t kSamples = 12;  // of the global batch

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
  // Rank 0's parameters after kSteps.
  static NamedTensors Train(const Training& run) {
    NamedTensors parameters;
    const auto body = [&](Communicator& world) -> absl::Status {
      ReplicatedOptions options;
      options.accumulation_steps = run.accumulation_steps;
      options.seed = run.seed;
      TANDEM_ASSIGN_OR_RETURN(auto strategy,
                              NewReplicated(DropoutModel(), options, world));
      for (int step = 0; step < kSteps; ++step) {
        if (step > 0 && step == run.resume_at) {
          NamedTensors state;
          for (const auto& [name, tensor] : strategy->Parameters()) {
            state.emplace_back(name, tensor.detach().cpu().clone());
          }
          TANDEM_ASSIGN_OR_RETURN(
              strategy, NewReplicated(DropoutModel(), options, world));
          TANDEM_RETURN_IF_ERROR(strategy->LoadModelState(state));
          strategy->ResumeAt(step);
        }
        const Batch batch = Share(GlobalBatch(step, kSamples), world);
        TANDEM_RETURN_IF_ERROR(strategy->TrainStep(batch, 0.5).status());
      }
      if (world.rank() > 0) return absl::OkStatus();
      for (const auto& [name, tensor] : strategy->Parameters()) {
        parameters.emplace_back(name, tensor.detach().cpu().clone());
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
  const NamedTensors alone = Train({});
  EXPECT_TRUE(Close(Train({/*ranks=*/2}), alone));
  EXPECT_TRUE(Close(Train({/*ranks=*/3}), alone));
}

TEST_P(ReplicatedDropoutTest, GradientAccumulationDrawsTheSame) {
  const NamedTensors alone = Train({});
  EXPECT_TRUE(Close(Train({1, /*accumulation_steps=*/3}), alone));
  EXPECT_TRUE(Close(Train({2, /*accumulation_steps=*/2}), alone));
}

TEST_P(ReplicatedDropoutTest, AnotherSeedDrawsOthers) {
  EXPECT_FALSE(Close(Train({1, 1, /*seed=*/6}), Train({})));
}

TEST_P(ReplicatedDropoutTest, AResumedJobDrawsAsIfItHadNotStopped) {
  EXPECT_TRUE(Close(Train({2, 1, 5, /*resume_at=*/2}), Train({2})));
}

TANDEM_ON_DEVICE_TYPES(ReplicatedDropoutTest);

}  // namespace
}  // namespace tandem::replicated_dropout_test
