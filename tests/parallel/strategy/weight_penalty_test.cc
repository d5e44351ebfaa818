// A weight that gets gradients from both parts of backward: that of the layer's
// product is left for later, that of a penalty on the weight comes at once.

#include <ATen/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"

namespace tandem {
namespace {

constexpr int64_t kWidth = 9;
constexpr int64_t kBatch = 24;
constexpr int kSteps = 3;
constexpr uint64_t kSeed = 2;
constexpr double kRate = 0.1;

// A linear layer whose weight is to be small.
LayerSpec Penalised(const std::string& name) {
  LayerSpec spec = LinearLayer(name, kWidth, kWidth);
  spec.make = [make = spec.make](uint64_t seed) {
    Layer layer = make(seed);
    const at::Tensor weight = NamedParameters({layer}).front().second;
    layer.forward = [forward = layer.forward, weight](const at::Tensor& x) {
      AddAuxiliaryLoss("l2", weight.square().sum().mul(0.1));
      return forward(x);
    };
    return layer;
  };
  return spec;
}

LayerSpecs Specs() {
  LayerSpecs specs;
  for (int i = 0; i < 8; ++i) {
    specs.push_back(Penalised(absl::StrCat("fc", i)));
    specs.push_back(ReluLayer(absl::StrCat("relu", i)));
  }
  return specs;
}

Batch BatchOf(int step, int replica, int replicas) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", step));
  const at::Tensor inputs = at::randn({kBatch, kWidth}, generator);
  const at::Tensor targets =
      at::randint(kWidth, {kBatch}, generator, at::kLong);
  const int64_t size = kBatch / replicas;
  return {inputs.narrow(0, replica * size, size),
          targets.narrow(0, replica * size, size), size};
}

struct Layout {
  std::string schedule;
  ScheduleShape shape;
  int ranks = 1;  // each has a replica's devices
  int groups = 0;
};

absl::Status Train(const Layout& layout, Communicator* world,
                   NamedTensors* parameters) {
  MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.schedule,
                          MakeSchedule(layout.schedule, layout.shape));
  TANDEM_ASSIGN_OR_RETURN(options.cuts,
                          UniformCuts(16, options.schedule.stages));
  options.devices.assign(static_cast<size_t>(layout.shape.devices), c10::kCPU);
  options.seed = kSeed;
  options.reproducible = true;
  options.gradient_groups = layout.groups;
  TANDEM_ASSIGN_OR_RETURN(
      const auto strategy,
      MeshStrategy::Create(Specs(), CrossEntropy, options, world));
  const int rank = world == nullptr ? 0 : world->rank();
  for (int step = 0; step < kSteps; ++step) {
    TANDEM_RETURN_IF_ERROR(
        strategy->TrainStep(BatchOf(step, rank, layout.ranks), kRate).status());
  }
  if (rank > 0) return absl::OkStatus();
  for (const auto& [name, tensor] : strategy->Parameters()) {
    parameters->emplace_back(name, tensor.detach().clone());
  }
  return absl::OkStatus();
}

NamedTensors Trained(const Layout& layout) {
  NamedTensors parameters;
  const absl::Status status =
      layout.ranks == 1
          ? Train(layout, nullptr, &parameters)
          : RunThreadRanks(layout.ranks, [&](Communicator& world) {
              return Train(layout, &world, &parameters);
            });
  EXPECT_TRUE(status.ok()) << status;
  return parameters;
}

TEST(WeightPenaltyTest, EveryLayoutHasTheBitsOfOneDevice) {
  for (const int groups : {0, 4}) {
    const NamedTensors expected = Trained({"1f1b", {1, 1, 12}, 1, groups});
    for (const Layout& layout : std::vector<Layout>{
             {"zb_h1", {1, 1, 12}},
             {"zb_h1", {2, 1, 12}},
             {"zb_h1", {4, 1, 12}},
             {"zb_v", {2, 2, 12}},
             {"zb_v", {4, 2, 12}},
             {"1f1b", {4, 1, 12}},
             {"zb_h1", {4, 1, 6}, 2},
             {"zb_v", {2, 2, 3}, 4},
         }) {
      Layout its = layout;
      its.groups = groups;
      const NamedTensors found = Trained(its);
      EXPECT_EQ(WeightsSha256(found), WeightsSha256(expected))
          << layout.schedule << ", " << layout.shape.devices << " devices, "
          << layout.ranks << " replicas, " << groups << " groups";
    }
  }
}

}  // namespace
}  // namespace tandem
