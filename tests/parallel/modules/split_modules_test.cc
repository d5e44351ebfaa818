// Zero-bubble schedules over torch::nn modules: their weights' gradients really
// come later than their inputs'.

#include <ATen/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/random/default_generator.h"
#include "core/random/random.h"
#include "models/classification_loss.h"
#include "models/modules/layers_of.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

using at::Tensor;

constexpr uint64_t kSeed = 3;
constexpr int64_t kWidth = 5;
constexpr int kStages = 3;
constexpr int kMicrobatches = 6;

// What gradients come, in their order. Those of one layer come on one thread.
class Log {
 public:
  struct Event {
    int layer;
    bool of_weight;  // else of the layer's input
  };

  void Add(const Event& event) {
    const absl::MutexLock lock(&mutex_);
    events_.push_back(event);
  }
  std::vector<Event> events() const {
    const absl::MutexLock lock(&mutex_);
    return events_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<Event> events_;
};

// tanh(x weight^T + bias) by LibTorch's own operators, which notes when its
// gradients come.
struct Watched : torch::nn::Module {
  Watched(int layer, Log& log) : layer(layer), log(log) {
    linear = register_module("linear", torch::nn::Linear(kWidth, kWidth));
    linear->weight.register_hook([layer, &log](const Tensor&) {
      log.Add({layer, true});
    });
  }
  Tensor forward(const Tensor& x) {
    if (x.requires_grad()) {
      x.register_hook([layer = layer, log = &log](const Tensor&) {
        log->Add({layer, false});
      });
    }
    return linear(x).tanh();
  }
  const int layer;
  Log& log;
  torch::nn::Linear linear{nullptr};
};

// Two layers a stage.
LayerSpecs Specs(Log& log) {
  const DefaultGeneratorScope draws(kSeed);
  torch::nn::Sequential net;
  for (int i = 0; i < 2 * kStages; ++i) {
    net->push_back(std::make_shared<Watched>(i, log));
  }
  return LayersOf(net).value().specs;
}

absl::StatusOr<LabOutcome> Trained(const std::string& schedule, Log& log) {
  LabJob job;
  job.specs = [&log] { return Specs(log); };
  job.loss = CrossEntropy;
  job.batch = [](int step) {
    const at::Generator draws = GeneratorFor(kSeed, absl::StrCat(step));
    const int64_t size = 2 * kMicrobatches;
    return Batch{at::randn({size, kWidth}, draws),
                 at::randint(kWidth, {size}, draws, at::kLong), size};
  };
  job.steps = 1;
  LabLayout layout = LabPipeline(kStages, kStages, kMicrobatches);
  layout.schedule = schedule;
  return TrainInLab(layout, job);
}

// What a stage's microbatches have postponed.
struct Postponed {
  int behind_inputs = 0;  // weights' parts behind the whole of inputs' parts
  int most_waiting = 0;   // most weights' parts that waited at one time
};

Postponed PostponedIn(int stage, const std::vector<Log::Event>& events) {
  const int first = 2 * stage, last = first + 1;
  Postponed postponed;
  int inputs = 0, weights = 0, last_weights = 0;
  for (const Log::Event& each : events) {
    if (each.layer == first && !each.of_weight) ++inputs;
    if (each.layer == first && each.of_weight) ++weights;
    // Microbatches come in one order: this is the next one's.
    if (each.layer == last && each.of_weight && last_weights++ < inputs) {
      ++postponed.behind_inputs;
    }
    postponed.most_waiting = std::max(postponed.most_waiting, inputs - weights);
  }
  EXPECT_EQ(inputs, kMicrobatches);
  EXPECT_EQ(weights, kMicrobatches);
  EXPECT_EQ(last_weights, kMicrobatches);
  return postponed;
}

TEST(SplitModulesTest, WeightsOfModulesWaitInZeroBubbleSchedules) {
  Log plain, split;
  const auto expected = Trained("1f1b", plain);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ExpectSameBits(Trained("zb_h1", split), expected);
  for (int stage = 1; stage < kStages; ++stage) {
    SCOPED_TRACE(stage);
    EXPECT_EQ(PostponedIn(stage, plain.events()).behind_inputs, 0);
    const Postponed found = PostponedIn(stage, split.events());
    EXPECT_EQ(found.behind_inputs, kMicrobatches);
    std::printf("stage %d: %d of %d apart, most waiting %d\n", stage,
                found.behind_inputs, kMicrobatches, found.most_waiting);
    // Behind other microbatches, too, but for the last stage.
    EXPECT_GT(found.most_waiting, stage + 1 < kStages ? 1 : 0);
  }
}

}  // namespace
}  // namespace tandem
