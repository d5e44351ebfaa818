// A vocabulary in parts in layouts of the mesh, its parts on stages of their
// own or together: the bits of one device with as many parts, the undivided
// loss within rounding, and less memory on the fullest device.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "models/classification_loss.h"
#include "models/vocab_parallel.h"
#include "tests/parallel/strategy/strategy_lab.h"
#include "tests/parallel/strategy/technique_models.h"
#include "tests/parallel/strategy/technique_rows.h"

namespace tandem::vocab_parallel_layouts_test {
namespace {

// Before the first backward, which makes autograd's threads.
class WithSim : public testing::Environment {
 public:
  void SetUp() override { SimDevices(3); }
};

testing::Environment* const with_sim =
    testing::AddGlobalTestEnvironment(new WithSim);

constexpr int kMicrobatches = 4;

struct Problem {
  std::string name;
  bool is_gpt = true;
  bool tied = false;
  int64_t vocabulary = 19;
};

// `parts` 1: undivided, which reads no targets.
LabJob JobOf(const Problem& problem, int64_t parts,
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
  return LabLayouts(column, kMicrobatches).front();
}

LabLayout OneDevice() { return Layout("sequential 1x1x1"); }

std::vector<TechniqueRow> Rows() {
  std::vector<TechniqueRow> rows;
  for (const Problem& problem :
       {Problem{"GptTied", true, true}, Problem{"Llama", false, false}}) {
    for (const int64_t parts : {2, 3}) {
      rows.push_back(
          {absl::StrCat(problem.name, "In", parts),
           LabLayouts("gpipe 1x1x3, 1f1b 1x3x1, zb_h1 1x2x1, "
                      "interleaved_1f1b 1x2x1x2, 1f1b 2x2x1, 1f1b 1x2x1 always",
                      kMicrobatches),
           Always(JobOf(problem, parts)), OneDevice()});
    }
  }
  // A product's operands are rounded to 8 or 11 bits.
  for (const c10::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    rows.push_back({absl::StrCat("GptTiedIn2In", at::toString(dtype)),
                    LabLayouts("zb_h1 1x2x1", kMicrobatches),
                    Always(JobOf({"GptTied", true, true}, 2, dtype)),
                    OneDevice()});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Vocabulary, TechniqueTest, testing::ValuesIn(Rows()),
                         RowName);

TEST(VocabParallelLayoutsTest, HasItsCells) {
  size_t cells = 0;
  for (const TechniqueRow& row : Rows()) cells += row.columns.size();
  EXPECT_EQ(cells, 2u * 2 * 6 + 2);
}

// An evaluation's score, too, of which the model is another's by its names.
TEST(VocabParallelLayoutsTest, IsTheUndividedLoss) {
  int cells = 0;
  for (const Problem& problem :
       {Problem{"gpt", true, false}, Problem{"gpt, tied", true, true},
        Problem{"llama, tied", false, true}}) {
    const auto plain = TrainInLab(OneDevice(), JobOf(problem, 1));
    ASSERT_TRUE(plain.ok()) << plain.status();
    for (const int64_t parts : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(problem.name, ", ", parts));
      const auto divided =
          TrainInLab(Layout("1f1b 1x2x1"), JobOf(problem, parts));
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
  const Problem problem = {"gpt, tied", true, true};
  const auto wide = TrainInLab(OneDevice(), JobOf(problem, 1));
  ASSERT_TRUE(wide.ok()) << wide.status();
  for (const c10::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto low =
        TrainInLab(Layout("zb_h1 1x2x1"), JobOf(problem, 2, dtype));
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
  LabJob job = JobOf({"gpt", true, false, 4001}, parts);
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
      most = std::max<int64_t>(most, sim::BooksOf(i).peak.total);
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

}  // namespace
}  // namespace tandem::vocab_parallel_layouts_test
