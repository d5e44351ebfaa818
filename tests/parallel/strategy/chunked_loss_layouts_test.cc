// The loss in chunks of tokens in every layout, its last stage on a rank of its
// own, on one of several devices of a rank, or once in each replica: the bits
// of one device, and the plain loss within rounding.

#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/random/random.h"
#include "models/chunked_loss.h"
#include "models/classification_loss.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 5;
constexpr int64_t kSamples = 16;
constexpr int kMicrobatches = 8;
constexpr int64_t kTokens = 6;
constexpr int64_t kVocabulary = 20;

LayerSpecs SmallGpt(bool tied) {
  GptOptions options;
  options.layers = 2;
  options.width = 24;
  options.heads = 3;
  options.context = kTokens;
  options.vocabulary = kVocabulary;
  options.ties_lm_head = tied;
  return *Gpt(options);
}

LayerSpecs SmallLlama(bool tied) {
  LlamaOptions options;
  options.layers = 2;
  options.width = 24;
  options.ffn_width = 40;
  options.head_dim = 6;
  options.context = kTokens;
  options.vocabulary = kVocabulary;
  options.ties_lm_head = tied;
  return *Llama(options);
}

struct Problem {
  std::string name;
  LayerSpecs (*specs)(bool tied);
  bool tied;
  std::optional<int64_t> ignored;  // a target that is no prediction
  bool everywhere = false;         // in all layouts, or in three
};

std::vector<Problem> Problems() {
  std::vector<Problem> problems;
  for (const bool tied : {false, true}) {
    for (const std::optional<int64_t> ignored :
         {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
      const std::string kind =
          absl::StrCat(tied ? ", tied" : "", ignored ? ", ignoring" : "");
      problems.push_back(
          {"gpt" + kind, SmallGpt, tied, ignored, !ignored && tied});
      problems.push_back(
          {"llama" + kind, SmallLlama, tied, ignored, !ignored && !tied});
    }
  }
  return problems;
}

Batch BatchOf(int step) {
  const at::Generator draws = GeneratorFor(kSeed, absl::StrCat(step));
  const auto tokens = [&] {
    return at::randint(kVocabulary, {kSamples, kTokens}, draws, at::kLong);
  };
  return {tokens(), tokens(), kSamples};
}

// `chunk` 0: the plain loss.
LabJob JobOf(const Problem& problem, int64_t chunk) {
  LabJob job;
  job.specs = [=] {
    LayerSpecs specs = problem.specs(problem.tied);
    return chunk == 0 ? specs : *WithoutLogits(std::move(specs));
  };
  job.loss = problem.ignored ? CrossEntropyIgnoring(*problem.ignored)
                             : LossFunction(CrossEntropy);
  if (chunk > 0) {
    job.loss = ChunkedCrossEntropy("lm_head.weight", chunk, problem.ignored);
  }
  job.change = [](MeshStrategyOptions& options) {
    options.optimizer = SgdOptions{0.9};
    options.clip_norm = 0.1;
    options.reproducible = true;
  };
  job.batch = BatchOf;
  job.sparing = true;
  job.steps = 2;
  return job;
}

LabLayout Layout(const std::string& name, const std::string& schedule,
                 int replicas, int pipe, int devices = 1) {
  LabLayout layout = {name, schedule, replicas, pipe, devices};
  layout.microbatches = kMicrobatches;
  return layout;
}

std::vector<LabLayout> Layouts(bool all) {
  std::vector<LabLayout> layouts = {Layout("ddp", "sequential", 2, 1),
                                    Layout("ranks", "1f1b", 1, 2),
                                    Layout("hybrid of ranks", "1f1b", 2, 2)};
  if (!all) return layouts;
  for (const LabLayout& each :
       {Layout("ddp of 4", "sequential", 4, 1),
        Layout("devices of a rank", "1f1b", 1, 1, 2),
        Layout("4 ranks", "gpipe", 1, 4),
        Layout("ranks of devices", "1f1b", 1, 2, 2),
        Layout("split backward", "zb_h1", 1, 2),
        Layout("hybrid of devices", "zb_h1", 2, 1, 2),
        Layout("hybrid with checkpointing", "1f1b", 2, 2)}) {
    layouts.push_back(each);
  }
  layouts.back().checkpointing = ActivationCheckpointing::kAlways;
  return layouts;
}

TEST(ChunkedLossLayoutsTest, HasTheBitsOfOneDevice) {
  int cells = 0;
  for (const Problem& problem : Problems()) {
    const LabJob job = JobOf(problem, /*chunk=*/5);  // a microbatch has 12
    const auto one = TrainInLab(Layout("one", "sequential", 1, 1), job);
    for (const LabLayout& layout : Layouts(problem.everywhere)) {
      SCOPED_TRACE(absl::StrCat(problem.name, ", ", layout.name));
      ExpectSameBits(TrainInLab(layout, job), one);
      ++cells;
    }
  }
  std::printf("%d cells\n", cells);
  EXPECT_EQ(cells, 2 * 10 + 6 * 3);
}

TEST(ChunkedLossLayoutsTest, IsThePlainLoss) {
  const LabLayout hybrid = Layout("hybrid of ranks", "1f1b", 2, 2);
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    const auto plain = TrainInLab(hybrid, JobOf(problem, 0));
    for (const int64_t chunk : {1, 5, 100}) {
      ExpectClose(TrainInLab(hybrid, JobOf(problem, chunk)), plain);
    }
  }
}

}  // namespace
}  // namespace tandem
