// Techniques that save memory, in layouts of the mesh.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "models/classification_loss.h"
#include "models/cnn.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/transformer/gpt.h"
#include "models/vocab_parallel.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/strategy_lab.h"
#include "tests/parallel/strategy/technique_rows.h"

namespace tandem::memory_techniques_test {
namespace {

// A vocabulary in parts, on stages of their own or together: the bits of one
// device with as many parts, the undivided loss within rounding, and less
// memory on the fullest device.

// Before the first backward, which makes autograd's threads.
class WithSim : public testing::Environment {
 public:
  void SetUp() override { SimDevices(3); }
};

testing::Environment* const with_sim =
    testing::AddGlobalTestEnvironment(new WithSim);

constexpr int kMicrobatches = 4;

struct Divided {
  std::string name;
  bool is_gpt = true;
  bool tied = false;
  int64_t vocabulary = 19;
};

// `parts` 1: undivided, which reads no targets.
LabJob DividedJob(const Divided& problem, int64_t parts,
                  c10::ScalarType dtype = at::kFloat) {
  LabJob job;
  job.specs = [=] {
    const LayerSpecs specs = problem.is_gpt
                                 ? SmallGpt(problem.vocabulary, problem.tied)
                                 : SmallLlama(problem.vocabulary, problem.tied);
    return parts == 1 ? specs : DivideVocabulary(specs, {parts, 5})->specs;
  };
  job.loss = parts == 1 ? LossFunction::OfAnyPrecision(CrossEntropy)
                        : VocabParallelCrossEntropy("lm_head", parts);
  job.change = [dtype](MeshStrategyOptions& options) {
    options.optimizer = SgdOptions{0.9};
    options.clip_norm = 0.1;
    options.reproducible = true;
    if (dtype != at::kFloat) options.ddp.mixed_precision.param_dtype = dtype;
  };
  job.batch = [=](int step) {
    Batch batch = TokenBatch(problem.vocabulary, /*size=*/8, step);
    if (parts > 1) batch.further_inputs[kVocabTargets] = batch.targets;
    return batch;
  };
  job.sparing = true;
  job.steps = 2;
  job.test = 7;
  return job;
}

LabLayout Layout(const std::string& column) {
  return LabLayoutNamed(column, kMicrobatches);
}

LabLayout OneDevice() { return Layout("sequential 1x1x1"); }

std::vector<TechniqueRow> VocabularyRows() {
  std::vector<TechniqueRow> rows;
  for (const Divided& problem :
       {Divided{"GptTied", true, true}, Divided{"Llama", false, false}}) {
    for (const int64_t parts : {2, 3}) {
      rows.push_back(
          {absl::StrCat(problem.name, "In", parts),
           LabLayouts("gpipe 1x1x3, 1f1b 1x3x1, zb_h1 1x2x1, "
                      "interleaved_1f1b 1x2x1x2, 1f1b 2x2x1, 1f1b 1x2x1 always",
                      kMicrobatches),
           Always(DividedJob(problem, parts)), OneDevice()});
    }
  }
  // A product's operands are rounded to 8 or 11 bits.
  for (const c10::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    rows.push_back({absl::StrCat("GptTiedIn2In", at::toString(dtype)),
                    LabLayouts("zb_h1 1x2x1", kMicrobatches),
                    Always(DividedJob({"GptTied", true, true}, 2, dtype)),
                    OneDevice()});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Vocabulary, TechniqueTest,
                         testing::ValuesIn(VocabularyRows()), RowName);

TEST(VocabParallelLayoutsTest, HasItsCells) {
  size_t cells = 0;
  for (const TechniqueRow& row : VocabularyRows()) cells += row.columns.size();
  EXPECT_EQ(cells, 2u * 2 * 6 + 2);
}

// An evaluation's score, too, of which the model is another's by its names.
TEST(VocabParallelLayoutsTest, IsTheUndividedLoss) {
  int cells = 0;
  for (const Divided& problem :
       {Divided{"gpt", true, false}, Divided{"gpt, tied", true, true},
        Divided{"llama, tied", false, true}}) {
    const auto plain = TrainInLab(OneDevice(), DividedJob(problem, 1));
    ASSERT_TRUE(plain.ok()) << plain.status();
    for (const int64_t parts : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(problem.name, ", ", parts));
      const auto divided =
          TrainInLab(Layout("1f1b 1x2x1"), DividedJob(problem, parts));
      ASSERT_TRUE(divided.ok()) << divided.status();
      for (size_t i = 0; i < plain->scores.size(); ++i) {
        EXPECT_NEAR(divided->scores[i].loss_sum, plain->scores[i].loss_sum,
                    1e-4);
        EXPECT_EQ(divided->scores[i].correct, plain->scores[i].correct);
      }
      EXPECT_NEAR(divided->evaluation.loss_sum, plain->evaluation.loss_sum,
                  1e-4);
      EXPECT_EQ(divided->evaluation.correct, plain->evaluation.correct);
      ++cells;
    }
  }
  EXPECT_EQ(cells, 6);
}

// A product's operands are rounded to 8 bits, and a loss is a mean over many.
TEST(VocabParallelLayoutsTest, TakesMixedPrecision) {
  const Divided problem = {"gpt, tied", true, true};
  const auto wide = TrainInLab(OneDevice(), DividedJob(problem, 1));
  ASSERT_TRUE(wide.ok()) << wide.status();
  for (const c10::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto low =
        TrainInLab(Layout("zb_h1 1x2x1"), DividedJob(problem, 2, dtype));
    ASSERT_TRUE(low.ok()) << low.status();
    EXPECT_NEAR(low->scores[1].loss_sum, wide->scores[1].loss_sum,
                wide->scores[1].loss_sum / 50);
  }
}

// Bytes of the device that has most, of a pipeline of three, of which the last
// has the head, or the last two a part each.
int64_t Peak(int64_t parts) {
  LabLayout layout = Layout("1f1b 1x1x3");
  layout.device_pool = SimDevices(3);
  LabJob job = DividedJob({"gpt", true, false, 4001}, parts);
  job.change = [parts, change = job.change](MeshStrategyOptions& options) {
    change(options);
    options.cuts = {4, 4};
    options.cuts.back() += parts;
  };
  job.begin = [](const LabRank&) {
    for (int i = 0; i < 3; ++i) sim::ResetPeak(i);
    return absl::OkStatus();
  };
  int64_t most = 0;
  job.end = [&most](const LabRank&) {
    for (int i = 1; i < 3; ++i) {  // the first has the embedding, either way
      most = std::max<int64_t>(most, sim::DeviceMemoryStatistics(i).peak.total);
    }
    return absl::OkStatus();
  };
  job.test = -1;
  EXPECT_TRUE(TrainInLab(layout, job).ok());
  return most;
}

TEST(VocabParallelLayoutsTest, TheFullestDeviceHasLess) {
  EXPECT_LE(Peak(2), Peak(1) * 3 / 4);
}

// Layers and groups of layers that are computed again, under the mesh strategy:
// the same training, and less memory, counted on simulated devices.

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

LabJob CheckpointedJob(const Problem& problem,
                       const SelectiveCheckpointing& selective) {
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

std::vector<TechniqueRow> CheckpointedRows() {
  std::vector<TechniqueRow> rows;
  const auto add = [&](const std::string& name, const Problem& problem,
                       const SelectiveCheckpointing& selective,
                       const std::vector<LabLayout>& columns) {
    TechniqueRow row = {problem.name + name, columns,
                        Always(CheckpointedJob(problem, selective))};
    row.without = CheckpointedJob(problem, {});
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
                         testing::ValuesIn(CheckpointedRows()), RowName);

TEST(CheckpointedLayersTest, HaveTheirCells) {
  size_t cells = 0;
  for (const TechniqueRow& row : CheckpointedRows())
    cells += row.columns.size();
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
  LabJob job = CheckpointedJob(problem, selective);
  int64_t peak = 0;
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int) -> absl::StatusOr<Score> {
    std::vector<int64_t> before;
    for (int i = 0; i < devices; ++i) {
      before.push_back(sim::DeviceMemoryStatistics(i).now.total);
      sim::ResetPeak(i);
    }
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->TrainStep(batch, 0.1));
    peak = 0;
    for (int i = 0; i < devices; ++i) {
      peak = std::max(peak, sim::DeviceMemoryStatistics(i).peak.total -
                                before[static_cast<size_t>(i)]);
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
}  // namespace tandem::memory_techniques_test
