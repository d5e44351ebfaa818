// Layers and groups of layers that are computed again, under the mesh strategy:
// the same training, and less memory, counted on simulated devices.

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/transformer/gpt.h"
#include "models/unet.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/strategy_lab.h"
#include "tests/parallel/strategy/technique_rows.h"

namespace tandem::checkpointed_layers_test {
namespace {

const std::vector<c10::Device>& Devices() {
  static const auto* const devices =
      new std::vector<c10::Device>(SimDevices(4));
  return *devices;
}

struct Problem {
  std::string name;
  LayerSpecs specs;
  BatchShape shape;
};

// Attention and a tied weight, BatchNorm, skip connections, dropout.
const std::vector<Problem>& Problems() {
  GptOptions gpt;
  gpt.layers = 6;
  gpt.width = 22;
  gpt.heads = 2;
  gpt.context = 7;
  gpt.vocabulary = 33;
  gpt.ties_lm_head = true;
  ResnetOptions resnet;
  resnet.classes = 5;
  resnet.width = 8;
  MlpDropoutOptions mlp;
  mlp.inputs = 7;
  mlp.classes = 5;
  mlp.blocks = 6;
  mlp.width = 13;
  mlp.dropout = 0.2;
  UnetOptions unet;
  unet.classes = 5;
  static const auto* const problems = new std::vector<Problem>{
      {"gpt", *Gpt(gpt), {{5}, 33, true}},
      {"resnet", Resnet18(resnet), {{3, 9, 9}, 5, false}},
      {"unet", UnetTiny(unet), {{1, 8, 8}, 5, false}},
      {"dropout", MlpDropout(mlp), {{7}, 5, false}}};
  return *problems;
}

LabJob JobOf(const Problem& problem, const SelectiveCheckpointing& selective) {
  LabJob job;
  job.specs = [&problem] { return problem.specs; };
  job.loss = CrossEntropy;
  job.batch = [&problem](int step) {
    return RandomBatch(problem.shape, 24, 3, step);
  };
  job.steps = 2;
  job.change = [selective](MeshStrategyOptions& options) {
    options.pipeline.selective = selective;
    options.optimizer = SgdOptions{0.9};
  };
  return job;
}

std::vector<LabLayout> Layouts() {
  std::vector<LabLayout> layouts = LabLayouts(
      "sequential 1x1x1, sequential 2x1x1, sequential 1x1x2, 1f1b 1x1x2, "
      "zb_h1 1x1x2, zb_v 1x1x2x2, zb_h1 1x2x1, interleaved_1f1b 2x1x2x2");
  for (LabLayout& each : layouts) each.device_pool = Devices();
  return layouts;
}

std::vector<TechniqueRow> Rows() {
  std::vector<TechniqueRow> rows;
  const auto add = [&](const std::string& name, const Problem& problem,
                       const SelectiveCheckpointing& selective,
                       const std::vector<LabLayout>& columns) {
    TechniqueRow row = {problem.name + name, columns,
                        Always(JobOf(problem, selective))};
    row.without = JobOf(problem, {});
    rows.push_back(row);
  };
  for (const Problem& problem : Problems()) {
    add("ByName", problem, {"[02468]$", 0}, Layouts());
    add("InGroups", problem, {"", 3}, Layouts());
  }
  // Gradients of weights of several microbatches, computed together.
  std::vector<LabLayout> together = LabLayouts("1f1b 1x1x2, zb_h1 1x1x2");
  for (LabLayout& each : together) each.weight_gradient_batch = 3;
  add("WithBatchesOfWeightGradients", Problems()[0], {"", 2}, together);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(CheckpointedLayers, TechniqueTest,
                         testing::ValuesIn(Rows()), RowName);

TEST(CheckpointedLayersTest, HaveTheirCells) {
  size_t cells = 0;
  for (const TechniqueRow& row : Rows()) cells += row.columns.size();
  EXPECT_EQ(cells, 4u * 2 * 8 + 2);
}

// The most bytes of activations on any device in the last step.
int64_t PeakOf(const std::string& schedule, int devices,
               const SelectiveCheckpointing& selective) {
  GptOptions gpt;
  gpt.layers = 8;
  gpt.width = 32;
  gpt.context = 32;
  gpt.vocabulary = 16;
  const Problem problem = {"gpt", *Gpt(gpt), {{32}, 16, true}};
  LabLayout layout = {"", schedule, 1, 1, devices};
  layout.microbatches = 4;
  layout.device_pool = Devices();
  LabJob job = JobOf(problem, selective);
  int64_t peak = 0;
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int) -> absl::StatusOr<Score> {
    std::vector<int64_t> before;
    for (int i = 0; i < devices; ++i) {
      before.push_back(sim::BooksOf(i).now.total);
      sim::ResetPeak(i);
    }
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->TrainStep(batch, 0.1));
    peak = 0;
    for (int i = 0; i < devices; ++i) {
      peak = std::max(
          peak, sim::BooksOf(i).peak.total - before[static_cast<size_t>(i)]);
    }
    return score;
  };
  const auto outcome = TrainInLab(layout, job);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return peak;
}

TEST(CheckpointedLayersTest, MemoryFalls) {
  for (const auto& [schedule, devices] :
       {std::make_pair("sequential", 1), std::make_pair("1f1b", 2),
        std::make_pair("gpipe", 2)}) {
    SCOPED_TRACE(schedule);
    const int64_t none = PeakOf(schedule, devices, {});
    const int64_t half = PeakOf(schedule, devices, {"h\\.[0246]$", 0});
    const int64_t blocks = PeakOf(schedule, devices, {"h\\.", 0});
    const int64_t pairs = PeakOf(schedule, devices, {"", 2});
    RecordProperty(std::string(schedule) + "_none", std::to_string(none));
    RecordProperty(std::string(schedule) + "_blocks", std::to_string(blocks));
    EXPECT_LT(half, none);
    EXPECT_LT(blocks, half);
    EXPECT_LT(blocks, none / 2);
    EXPECT_LT(pairs, none / 2);
  }
}

// What weights' gradients are computed from waits for them, computed again or
// not, and is at its most when nothing else is left. Whether a message has come
// by then (6 samples of 32 x 32 floats, one in each direction) is a matter of
// timing; a block has many times as much.
TEST(CheckpointedLayersTest, MemoryIsNoMoreWhereWeightGradientsWait) {
  constexpr int64_t kMessages = 2 * 6 * 32 * 32 * sizeof(float);
  const int64_t most = PeakOf("zb_h1", 2, {}) + kMessages;
  EXPECT_LE(PeakOf("zb_h1", 2, {"h\\.", 0}), most);
  EXPECT_LE(PeakOf("zb_h1", 2, {"", 2}), most);
}

}  // namespace
}  // namespace tandem::checkpointed_layers_test
