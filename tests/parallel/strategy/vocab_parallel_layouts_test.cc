// A vocabulary in parts in layouts of the mesh, its parts on stages of their
// own or together: the bits of one device with as many parts, the undivided
// loss within rounding, and less memory on the fullest device.

#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/random/random.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "models/classification_loss.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/vocab_parallel.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

// Before the first backward, which makes autograd's threads.
class WithSim : public testing::Environment {
 public:
  void SetUp() override { SimDevices(3); }
};

testing::Environment* const with_sim =
    testing::AddGlobalTestEnvironment(new WithSim);

constexpr int64_t kSamples = 8;
constexpr int kMicrobatches = 4;
constexpr int64_t kTokens = 6;

struct Problem {
  std::string name;
  bool is_gpt = true;
  bool tied = false;
  int64_t vocabulary = 19;
};

LayerSpecs SmallModel(const Problem& problem) {
  if (problem.is_gpt) {
    GptOptions options;
    options.layers = 2;
    options.width = 24;
    options.heads = 3;
    options.context = kTokens;
    options.vocabulary = problem.vocabulary;
    options.ties_lm_head = problem.tied;
    return *Gpt(options);
  }
  LlamaOptions options;
  options.layers = 2;
  options.width = 24;
  options.ffn_width = 40;
  options.head_dim = 6;
  options.context = kTokens;
  options.vocabulary = problem.vocabulary;
  options.ties_lm_head = problem.tied;
  return *Llama(options);
}

Batch BatchOf(int step, int64_t vocabulary) {
  const at::Generator draws = GeneratorFor(5, absl::StrCat(step));
  const auto tokens = [&] {
    return at::randint(vocabulary, {kSamples, kTokens}, draws, at::kLong);
  };
  Batch batch = {tokens(), tokens(), kSamples};
  batch.further_inputs[kVocabTargets] = batch.targets;
  return batch;
}

// `parts` 1: undivided, which reads no targets.
LabJob JobOf(const Problem& problem, int64_t parts,
             c10::ScalarType dtype = at::kFloat) {
  LabJob job;
  job.specs = [=] {
    LayerSpecs specs = SmallModel(problem);
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
    Batch batch = BatchOf(step, problem.vocabulary);
    if (parts == 1) batch.further_inputs.clear();
    return batch;
  };
  job.sparing = true;
  job.steps = 2;
  job.test = 7;
  return job;
}

LabLayout Layout(const std::string& name, const std::string& schedule,
                 int replicas, int pipe, int devices = 1, int chunks = 1) {
  LabLayout layout = {name, schedule, replicas, pipe, devices, chunks};
  layout.microbatches = kMicrobatches;
  return layout;
}

LabLayout OneDevice() { return Layout("one", "sequential", 1, 1); }

std::vector<LabLayout> Layouts() {
  std::vector<LabLayout> layouts = {
      Layout("devices of a rank", "gpipe", 1, 1, 3),
      Layout("ranks", "1f1b", 1, 3),
      Layout("backward in two parts", "zb_h1", 1, 2),
      Layout("interleaved", "interleaved_1f1b", 1, 2, 1, 2),
      Layout("hybrid", "1f1b", 2, 2),
      Layout("with checkpointing", "1f1b", 1, 2)};
  layouts.back().checkpointing = ActivationCheckpointing::kAlways;
  return layouts;
}

TEST(VocabParallelLayoutsTest, HasTheBitsOfOneDevice) {
  int cells = 0;
  for (const Problem& problem :
       {Problem{"gpt, tied", true, true}, Problem{"llama", false, false}}) {
    for (const int64_t parts : {2, 3}) {
      const LabJob job = JobOf(problem, parts);
      const auto one = TrainInLab(OneDevice(), job);
      for (const LabLayout& layout : Layouts()) {
        SCOPED_TRACE(
            absl::StrCat(problem.name, ", ", parts, ", ", layout.name));
        ExpectSameBits(TrainInLab(layout, job), one);
        ++cells;
      }
    }
  }
  std::printf("%d cells\n", cells);
  EXPECT_EQ(cells, 2 * 2 * 6);
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
          TrainInLab(Layout("ranks", "1f1b", 1, 2), JobOf(problem, parts));
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
    const LabJob job = JobOf(problem, 2, dtype);
    const auto low = TrainInLab(Layout("ranks", "zb_h1", 1, 2), job);
    ExpectSameBits(low, TrainInLab(OneDevice(), job));
    ASSERT_TRUE(low.ok());
    EXPECT_NEAR(low->scores[1].loss_sum, wide->scores[1].loss_sum,
                wide->scores[1].loss_sum / 50);
  }
}

// Bytes of the device that has most, of a pipeline of three, of which the last
// has the head, or the last two a part each.
int64_t Peak(int64_t parts) {
  LabLayout layout = Layout("devices", "1f1b", 1, 1, 3);
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
}  // namespace tandem
