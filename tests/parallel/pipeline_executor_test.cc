// A pipeline computes what the model in one piece does.

#include "parallel/pipeline_executor.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/layer_list.h"
#include "core/testing/device_types.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/cut.h"
#include "parallel/schedules.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int64_t kFeatures = 12;
constexpr int64_t kClasses = 5;
constexpr int kSteps = 3;
constexpr double kRate = 0.1;

LayerSpecs Specs() { return Mlp({kFeatures, 6, 16, kClasses}); }

std::vector<Batch> BatchesOf(int64_t size, int parts, int seed) {
  at::manual_seed(seed);
  const at::Tensor inputs = at::randn({size, kFeatures});
  const at::Tensor targets = at::arange(size).remainder(kClasses);
  std::vector<Batch> batches;
  const auto inputs_of = inputs.tensor_split(parts);
  const auto targets_of = targets.tensor_split(parts);
  for (int i = 0; i < parts; ++i) {
    batches.push_back({inputs_of[i], targets_of[i], inputs_of[i].size(0)});
  }
  return batches;
}

void Descend(const LayerList& layers) {
  const at::NoGradGuard no_grad;
  for (const auto& each : NamedParameters(layers)) {
    at::Tensor parameter = each.second;
    parameter.sub_(parameter.grad() * kRate);
    parameter.mutable_grad().reset();
  }
}

// The model in one piece, microbatch by microbatch.
double StepOfOnePiece(const LayerList& layers,
                      const std::vector<Batch>& batches) {
  double size = 0;
  Score score;
  for (const Batch& each : batches) size += static_cast<double>(each.size);
  for (const Batch& each : batches) {
    const LossResult result =
        CrossEntropy(Forward(layers, each.inputs), each.targets);
    const double weight = static_cast<double>(each.size) / size;
    (weight == 1 ? result.loss : result.loss.mul(weight)).backward();
    score += result.score;
  }
  Descend(layers);
  return score.loss();
}

class PipelineExecutorTest : public DeviceTypeTest {
 protected:
  static absl::StatusOr<std::unique_ptr<PipelineExecutor>> Make(
      const Schedule& schedule, LayerList layers,
      const PipelineOptions& options = {}) {
    const std::vector<c10::Device> devices = Devices(schedule.devices());
    const auto count = static_cast<int64_t>(layers.size());
    const std::vector<LayerRange> parts =
        PartsOf(*UniformCuts(count, schedule.stages), count);
    std::vector<PipelineStage> stages;
    for (int s = 0; s < schedule.stages; ++s) {
      const c10::Device device = devices[DeviceOfStage(schedule, s)];
      const LayerList its(layers.begin() + parts[s].begin,
                          layers.begin() + parts[s].end);
      for (const Layer& each : its) {
        if (each.module != nullptr) each.module->to(device);
      }
      stages.emplace_back(
          absl::StrCat("stage ", s + 1, " of ", schedule.stages), its, device,
          /*splits_backward=*/schedule.name[0] == 'z');
    }
    return PipelineExecutor::Create(schedule, std::move(stages), CrossEntropy,
                                    options);
  }

  static void ExpectTransparent(const Schedule& schedule, int64_t batch) {
    const LayerList whole = MakeLayers(Specs(), 3);
    const LayerList cut = MakeLayers(Specs(), 3);
    auto executor = Make(schedule, cut);
    ASSERT_TRUE(executor.ok()) << executor.status();
    for (int step = 0; step < kSteps; ++step) {
      const auto batches = BatchesOf(batch, schedule.microbatches, step);
      const double loss = StepOfOnePiece(whole, batches);
      const auto score = (*executor)->TrainStep(batches);
      ASSERT_TRUE(score.ok()) << score.status();
      EXPECT_EQ(score->loss(), loss);
      Descend(cut);
    }
    const NamedTensors expected = NamedParameters(whole);
    const NamedTensors found = NamedParameters(cut);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(Close(found[i].second.cpu(), expected[i].second, schedule))
          << expected[i].first;
    }
  }

  // Sums of gradients in the schedule's order: the same bits where that is the
  // microbatches' own.
  static bool Close(const at::Tensor& a, const at::Tensor& b,
                    const Schedule& schedule) {
    return schedule.name == "gpipe" ? a.allclose(b, 0, 1e-6) : at::equal(a, b);
  }
};

TEST_P(PipelineExecutorTest, IsTransparent) {
  int cells = 0;
  for (const std::string& name : ScheduleNames()) {
    for (int devices : {1, 2, 3}) {
      for (int chunks : {1, 2}) {
        for (int microbatches : {1, 2, 3, 6}) {
          const auto schedule =
              MakeSchedule(name, {devices, chunks, microbatches});
          if (!schedule.ok()) continue;
          SCOPED_TRACE(absl::StrCat(name, ", ", devices, " devices, ", chunks,
                                    " chunks, ", microbatches,
                                    " microbatches"));
          ExpectTransparent(*schedule, /*batch=*/13);
          ++cells;
        }
      }
    }
  }
  std::cout << cells << " cells: schedule x devices x chunks x microbatches\n";
  EXPECT_EQ(cells, 12 + 12 + 2 * (4 + 2 + 2) + 24 + 12 + 12);
}

TEST_P(PipelineExecutorTest, AFailureStopsAllStagesAndSaysWhere) {
  LayerList layers = MakeLayers(Specs(), 3);
  const auto schedule = MakeSchedule("1f1b", {3, 1, 4});
  int calls = 0;
  // Of the last stage.
  Layer& broken = layers.back();
  broken.forward = [forward = broken.forward,
                    &calls](const at::Tensor& x) -> at::Tensor {
    TORCH_CHECK(++calls != 3, "the third call fails");
    return forward(x);
  };
  const auto executor = Make(*schedule, layers);
  ASSERT_TRUE(executor.ok()) << executor.status();
  const absl::Status failed =
      (*executor)->TrainStep(BatchesOf(8, 4, 1)).status();
  EXPECT_EQ(std::string(failed.message()),
            "forward of microbatch 2 in stage 3 of 3: layer " + broken.name +
                ": the third call fails");
  // And it can go on.
  EXPECT_TRUE((*executor)->TrainStep(BatchesOf(8, 4, 1)).ok());
}

TEST_P(PipelineExecutorTest, RefusesWhatDoesNotFit) {
  const auto schedule = MakeSchedule("1f1b", {2, 1, 4});
  const auto executor = Make(*schedule, MakeLayers(Specs(), 3));
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_THAT(
      std::string(
          (*executor)->TrainStep(BatchesOf(8, 3, 1)).status().message()),
      HasSubstr("takes 4 microbatches, none empty; 3 were given"));
  EXPECT_THAT(std::string(PipelineExecutor::Create(*schedule, {}, CrossEntropy)
                              .status()
                              .message()),
              HasSubstr("has 2 stages, but 0 were given"));
}

TANDEM_ON_DEVICE_TYPES(PipelineExecutorTest);

}  // namespace
}  // namespace tandem
