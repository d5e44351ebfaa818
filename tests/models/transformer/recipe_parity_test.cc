// nanoGPT's recipe (AdamW in two groups, clipping, warm-up and cosine) beside
// PyTorch's, in double: a hundred losses that part by what rounding comes to
// there, so that none of it means something else here. What
// testdata/recipe_parity.json has is of make_recipe_parity.py.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/classification_loss.h"
#include "models/transformer/gpt.h"
#include "parallel/optim/learning_rate.h"
#include "tests/models/formula_values.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::recipe_parity_test {
namespace {

constexpr int64_t kContext = 16;
constexpr int64_t kVocabulary = 13;
constexpr int64_t kSamples = 4;
constexpr int kSteps = 100;

Layer InDouble(Layer layer) {
  layer.module->to(at::kDouble);
  return layer;
}

LayerSpecs Specs(bool tied) {
  GptOptions options;
  options.layers = 2;
  options.width = 24;
  options.heads = 3;
  options.context = kContext;
  options.vocabulary = kVocabulary;
  options.ties_lm_head = tied;
  LayerSpecs specs = *Gpt(options);
  for (LayerSpec& spec : specs) {
    if (spec.make) {
      spec.make = [make = spec.make](uint64_t seed) {
        return InDouble(make(seed));
      };
    }
    if (spec.make_tied) {
      spec.make_tied = [make = spec.make_tied](uint64_t seed,
                                               const NamedTensors& shared) {
        return InDouble(make(seed, shared));
      };
    }
  }
  return specs;
}

// A tied head has the embedding's values, wherever it lies.
absl::Status FillParameters(const LabRank& rank, bool tied) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : rank.strategy->Parameters()) {
    const at::Tensor values = at::empty(parameter.sizes());
    FillByFormula(
        tied && name == "lm_head.weight" ? "transformer.wte.weight" : name,
        values);
    EXPECT_EQ(parameter.scalar_type(), at::kDouble);
    parameter.copy_(values);
  }
  return absl::OkStatus();
}

Batch StepBatch(int step) {
  const at::Tensor i = at::arange(kContext + 1, at::kLong);
  const at::Tensor sample = at::arange(kSamples, at::kLong).unsqueeze(1);
  const at::Tensor tokens =
      (i * i + (sample + 3) * i + 5 * sample + step * (step + 1) / 2) %
      kVocabulary;
  return {tokens.narrow(1, 0, kContext), tokens.narrow(1, 1, kContext),
          kSamples};
}

double LearningRate(int step) {
  LearningRateOptions options;
  options.learning_rate = 1e-2;
  options.final_learning_rate = 1e-3;
  options.warmup_steps = 10;
  options.decay = LearningRateDecay::kCosine;
  options.total_steps = kSteps;
  return LearningRateAt(options, step);
}

// The recipe of --no_weight_decay_on='bias|ln_'.
void SetRecipe(MeshStrategyOptions& options) {
  AdamWOptions decayed;
  decayed.beta2 = 0.99;
  decayed.weight_decay = 0.1;
  AdamWOptions exempt = decayed;
  exempt.weight_decay = 0;
  options.optimizer = decayed;
  options.further_optimizers = {exempt};
  options.optimizer_group = [](const std::string& name) -> int64_t {
    return name.find("bias") != std::string::npos ||
                   name.find("ln_") != std::string::npos
               ? 1
               : 0;
  };
  options.clip_norm = 1;
}

LabJob Job(bool tied) {
  LabJob job;
  job.specs = [tied] { return Specs(tied); };
  job.loss = CrossEntropy;
  job.change = SetRecipe;
  job.batch = StepBatch;
  job.steps = kSteps;
  job.begin = [tied](const LabRank& rank) {
    return FillParameters(rank, tied);
  };
  job.step = [](const LabRank& rank, const Batch& batch, int step) {
    return rank.strategy->TrainStep(batch, LearningRate(step));
  };
  return job;
}

void ExpectLosses(const LabLayout& layout, bool tied,
                  const std::vector<double>& expected) {
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  const auto outcome = TrainInLab(layout, Job(tied));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(outcome->scores[step].loss(), expected[step], 1e-9)
        << "step " << step;
  }
}

TEST(RecipeParityTest, LossesArePyTorchsInDouble) {
  std::ifstream file("tests/models/transformer/testdata/recipe_parity.json");
  const auto parity = nlohmann::json::parse(file);
  LabLayout hybrid = {"hybrid", "1f1b", 2, 2};
  hybrid.microbatches = 4;
  for (LabLayout layout : {LabLayout{"one", "sequential", 1, 1}, hybrid}) {
    if (layout.ranks() == 1) layout.microbatches = 1;
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(absl::StrCat(layout.name, tied ? ", tied" : ""));
      ExpectLosses(layout, tied, parity[tied ? "gpt_tied" : "gpt"]);
    }
  }
}

}  // namespace
}  // namespace tandem::recipe_parity_test
