// The loss in chunks of tokens in every layout, its last stage on a rank of its
// own, on one of several devices of a rank, or once in each replica: the bits
// of one device, and the plain loss within rounding.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/chunked_loss.h"
#include "models/classification_loss.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

constexpr int64_t kSamples = 16;
constexpr int kMicrobatches = 8;

struct Job {
  std::string model;
  int64_t chunk;  // 0: the plain loss
  std::optional<int64_t> ignored;
};

LabJob JobOf(const Job& job) {
  LabJob made = ModelJob(job.model, kSamples, /*steps=*/2,
                         [](MeshStrategyOptions& options) {
                           options.optimizer = AdamWOptions();
                           options.clip_norm = 0.1;
                           options.reproducible = true;
                         });
  made.sparing = true;
  if (job.chunk == 0) {
    made.loss = job.ignored ? CrossEntropyIgnoring(*job.ignored)
                            : LossFunction(CrossEntropy);
    return made;
  }
  made.specs = [model = job.model] { return *WithoutLogits(LabSpecs(model)); };
  made.loss = ChunkedCrossEntropy("lm_head.weight", job.chunk, job.ignored);
  return made;
}

LabLayout Layout(const std::string& name, const std::string& schedule,
                 int replicas, int pipe, int devices = 1) {
  LabLayout layout = {name, schedule, replicas, pipe, devices};
  layout.microbatches = kMicrobatches;
  return layout;
}

std::vector<LabLayout> Layouts() {
  std::vector<LabLayout> layouts = {
      Layout("ddp", "sequential", 2, 1),
      Layout("ddp of 4", "sequential", 4, 1),
      Layout("devices of a rank", "1f1b", 1, 1, 2),
      Layout("ranks", "1f1b", 1, 2),
      Layout("4 ranks", "gpipe", 1, 4),
      Layout("ranks of devices", "1f1b", 1, 2, 2),
      Layout("split backward", "zb_h1", 1, 2),
      Layout("hybrid of ranks", "1f1b", 2, 2),
      Layout("hybrid of devices", "zb_h1", 2, 1, 2),
      Layout("hybrid with checkpointing", "1f1b", 2, 2)};
  layouts.back().checkpointing = ActivationCheckpointing::kAlways;
  return layouts;
}

TEST(ChunkedLossLayoutsTest, HasTheBitsOfOneDevice) {
  int cells = 0;
  for (const char* model :
       {"gpt_tiny", "gpt_tiny_tied", "llama_tiny", "llama_tiny_tied"}) {
    for (const std::optional<int64_t> ignored :
         {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
      // A microbatch has 12 tokens.
      const LabJob job = JobOf({model, /*chunk=*/5, ignored});
      const auto one = TrainInLab(Layout("one", "sequential", 1, 1), job);
      for (const LabLayout& layout : Layouts()) {
        SCOPED_TRACE(
            absl::StrCat(model, ignored ? " ignoring, " : ", ", layout.name));
        ExpectSameBits(TrainInLab(layout, job), one);
        ++cells;
      }
    }
  }
  std::printf("%d cells\n", cells);
  EXPECT_EQ(cells, 80);
}

TEST(ChunkedLossLayoutsTest, IsThePlainLoss) {
  const LabLayout hybrid = Layout("hybrid of ranks", "1f1b", 2, 2);
  for (const char* model : {"gpt_tiny", "llama_tiny_tied"}) {
    for (const std::optional<int64_t> ignored :
         {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
      SCOPED_TRACE(model);
      const auto plain = TrainInLab(hybrid, JobOf({model, 0, ignored}));
      for (const int64_t chunk : {1, 5, 12, 100}) {
        ExpectClose(TrainInLab(hybrid, JobOf({model, chunk, ignored})), plain);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
