// Whole strategies on each type of device, of which one is enough: one process,
// replicas and stages that share it. On a machine with a GPU, and built for it,
// the same on CUDA (docs/rehearsal.md).

#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "core/testing/device_types.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

constexpr int kSteps = 6;
constexpr int64_t kBatch = 12;

struct Technique {
  std::string name;
  LabChange change;
  // Products of tens of terms, in another order on a GPU, six steps long.
  LabTolerance tolerance = {1e-4, 1e-3, 1e-4};
};

std::vector<Technique> Techniques() {
  return {{"SGD", [](auto& o) { o.optimizer = SgdOptions{0.9}; }},
          {"AdamW, clipped",
           [](auto& o) {
             // A greater epsilon: what is next to nothing is to stay small.
             o.optimizer = AdamWOptions{0.9, 0.99, 1e-2, 0.1};
             o.clip_norm = 0.5;
           }},
          {"bf16",
           [](auto& o) {
             o.optimizer = SgdOptions{0.9};
             o.ddp.mixed_precision.param_dtype = at::kBFloat16;
           },
           {3e-2, 5e-2, 2e-2}},
          {"fp16",
           [](auto& o) {
             o.optimizer = SgdOptions{0.9};
             o.ddp.mixed_precision.param_dtype = at::kHalf;
             o.grad_scaler.emplace();
           },
           {1e-2, 2e-2, 5e-3}}};
}

struct Place {
  const char* name;
  LabLayout layout;
};

// Where ranks share a device they go by the host's memory: NCCL refuses them.
std::vector<Place> Places() {
  LabLayout one = {"", "sequential"};
  LabLayout replicas = {"", "sequential", 2};
  LabLayout stages = LabPipeline(2);
  LabLayout over_ranks = LabPipeline(2, 2);
  LabLayout hybrid = {"", "1f1b", 2, 2};
  for (LabLayout* each : {&one, &replicas, &stages, &over_ranks, &hybrid}) {
    each->microbatches = 4;
    each->backend = "gloo";
    each->shares_devices = true;
  }
  return {{"single", one},
          {"two replicas over Gloo", replicas},
          {"two stages", stages},
          {"two stages over Gloo", over_ranks},
          {"two replicas of two stages over Gloo", hybrid}};
}

class DeviceStrategiesTest : public DeviceTypeTest {
 protected:
  static absl::StatusOr<LabOutcome> Train(const std::string& model,
                                          LabLayout layout, c10::Device device,
                                          const LabChange& change) {
    const auto devices = static_cast<size_t>(layout.ranks() * layout.devices);
    layout.device_pool.assign(devices, device);
    LabJob job = ModelJob(model, kBatch, kSteps, change);
    job.test = kSteps;
    return TrainInLab(layout, job);
  }
};

TEST_P(DeviceStrategiesTest, TrainsAsTheCpuAlone) {
  int cells = 0;
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied"}) {
    for (const Technique& technique : Techniques()) {
      const bool takes_long = model != "mlp_dropout";
      if (takes_long && technique.name != "AdamW, clipped") continue;
      const auto expected =
          Train(model, Places().front().layout, c10::kCPU, technique.change);
      for (const auto& [name, layout] : Places()) {
        SCOPED_TRACE(model + ", " + technique.name + ", " + name);
        const auto found = Train(model, layout, TestDevice(), technique.change);
        ASSERT_TRUE(found.ok()) << found.status();
        ASSERT_TRUE(expected.ok()) << expected.status();
        EXPECT_LT(found->scores.back().loss(), found->scores.front().loss());
        EXPECT_NEAR(found->scores.back().loss(), expected->scores.back().loss(),
                    technique.tolerance.loss);
        for (const auto& [parameter, values] : expected->model) {
          EXPECT_TRUE(found->model.at(parameter).allclose(
              values, technique.tolerance.relative,
              technique.tolerance.absolute))
              << parameter;
        }
        ++cells;
      }
    }
  }
  std::cout << cells << " cells of models, techniques and places on "
            << TestDevice() << "\n";
  EXPECT_EQ(cells, (4 + 1) * 5);
}

TANDEM_ON_DEVICE_TYPES(DeviceStrategiesTest);

#ifdef TANDEM_CUDA
TEST(DeviceStrategiesOnCudaTest, ThereIsAGpu) {
  if (DeviceTypesToTest().back() != c10::kCUDA) {
    GTEST_SKIP() << "there is no GPU";
  }
}
#endif

}  // namespace
}  // namespace tandem
