// Against transformers' generate() and its warpers: transformers_parity_test.

#include "models/decoding/generator.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/decoding/sampling.h"
#include "models/layers/token_embedding.h"
#include "models/transformer/gpt.h"

namespace tandem::generator_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr GptOptions kSmall = {/*layers=*/2, /*width=*/12, /*heads=*/3,
                               /*context=*/300, /*vocabulary=*/11};

LayerList Layers() { return MakeLayers(*Gpt(kSmall), 1); }

GenerationOptions Options(int64_t max_new_tokens) {
  GenerationOptions options;
  options.max_new_tokens = max_new_tokens;
  options.sampling.temperature = 5;
  options.sampling.seed = 3;
  return options;
}

std::vector<int64_t> Prompt(int64_t tokens) {
  std::vector<int64_t> prompt;
  for (int64_t i = 0; i < tokens; ++i) prompt.push_back(i * i % 11);
  return prompt;
}

std::string ErrorText(const absl::StatusOr<Generator>& generator) {
  EXPECT_EQ(generator.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(generator.status().message());
}

TEST(GeneratorTest, TellsEachTokenAsItGivesThem) {
  Generator generator = *Generator::Read(Layers(), Prompt(3), 20);
  std::vector<int64_t> told;
  const std::vector<int64_t> tokens = *generator.Generate(
      Options(9), 0, [&](int64_t token) { told.push_back(token); });
  EXPECT_EQ(tokens.size(), 9u);
  EXPECT_EQ(told, tokens);
}

TEST(GeneratorTest, ATextDependsOnItsNumberAlone) {
  Generator generator = *Generator::Read(Layers(), Prompt(3), 20);
  const std::vector<int64_t> first = *generator.Generate(Options(12), 0);
  const std::vector<int64_t> second = *generator.Generate(Options(12), 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(*generator.Generate(Options(12), 0), first);
  Generator other = *Generator::Read(Layers(), Prompt(3), 15);
  EXPECT_EQ(*other.Generate(Options(12), 1), second);
}

// A prompt that is read in pieces: the position, too, is the same.
TEST(GeneratorTest, GoesOnFromALongPromptAsFromAShortOneAndItsText) {
  const int64_t length = 290;
  Generator whole = *Generator::Read(Layers(), Prompt(length), 300);
  const std::vector<int64_t> text = *whole.Generate(Options(10));
  std::vector<int64_t> further = Prompt(length);
  further.insert(further.end(), text.begin(), text.begin() + 4);
  Generator rest = *Generator::Read(Layers(), further, 300);
  EXPECT_EQ(*rest.Generate(Options(6)),
            std::vector<int64_t>(text.begin() + 4, text.end()));
}

TEST(GeneratorTest, EndsAtTheCapacityAndAtTheEnd) {
  Generator generator = *Generator::Read(Layers(), Prompt(3), 8);
  const std::vector<int64_t> tokens = *generator.Generate(Options(50));
  EXPECT_EQ(tokens.size(), 5u);
  GenerationOptions options = Options(50);
  const std::vector<std::vector<int64_t>> all = {{tokens[3]},
                                                 {-1, 11, tokens[3]}};
  for (const std::vector<int64_t>& ends : all) {
    options.ends = ends;
    const std::vector<int64_t> ended = *generator.Generate(options);
    EXPECT_EQ(ended, std::vector<int64_t>(
                         tokens.begin(),
                         std::find(tokens.begin(), tokens.end(), tokens[3])));
  }
  EXPECT_TRUE(generator.Generate(Options(0))->empty());
}

TEST(GeneratorTest, WhatCannotBeReadIsRefused) {
  EXPECT_THAT(ErrorText(Generator::Read(Layers(), {}, 8)),
              HasSubstr("the prompt is empty"));
  EXPECT_THAT(ErrorText(Generator::Read(Layers(), Prompt(9), 8)),
              HasSubstr("the prompt has 9 tokens, and the model takes 8"));
  EXPECT_FALSE(Generator::Read(Layers(), {11}, 8).ok());
  const LayerList stateless =
      MakeLayers({TokenEmbeddingLayer("wte", 11, 12, GptInitialValues(1))}, 1);
  EXPECT_THAT(ErrorText(Generator::Read(stateless, Prompt(3), 8)),
              HasSubstr("no layer of the model asks for the KV cache"));
}

SamplingOptions Options(double temperature, int64_t top_k, double top_p) {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  return options;
}

// Logits whose probabilities are given, at temperature 1.
at::Tensor ProbabilityLogits(std::vector<double> probabilities) {
  for (double& each : probabilities) each = std::log(each);
  return at::tensor(probabilities, at::kDouble);
}

std::vector<double> Probabilities(const at::Tensor& logits,
                                  const SamplingOptions& options) {
  return *TokenProbabilities(logits, options);
}

TEST(SamplingTest, GreedyTakesTheFirstOfTheMostLikely) {
  EXPECT_THAT(
      Probabilities(at::tensor({1.0, 4.0, 4.0, -1.0}), Options(0, 0, 1)),
      ElementsAre(0, 1, 0, 0));
  EXPECT_EQ(*SampleToken(at::tensor({1.0, 4.0, 4.0}), Options(0, 0, 1), 3, 0),
            1);
}

TEST(SamplingTest, TemperatureIsAPowerOfProbabilities) {
  EXPECT_THAT(Probabilities(ProbabilityLogits({0.2, 0.8}), Options(0.5, 0, 1)),
              ElementsAre(DoubleNear(0.04 / 0.68, 1e-12),
                          DoubleNear(0.64 / 0.68, 1e-12)));
  // This is as good as greedy, without an overflow.
  EXPECT_THAT(Probabilities(at::tensor({-1e4, 0.0}), Options(1e-300, 0, 1)),
              ElementsAre(0, 1));
}

TEST(SamplingTest, TopPKeepsTheFewestThatSuffice) {
  const at::Tensor logits = ProbabilityLogits({0.1, 0.4, 0.2, 0.3});
  EXPECT_THAT(
      Probabilities(logits, Options(1, 0, 0.65)),
      ElementsAre(0, DoubleNear(4. / 7, 1e-12), 0, DoubleNear(3. / 7, 1e-12)));
  EXPECT_THAT(Probabilities(logits, Options(1, 0, 0.1)),
              ElementsAre(0, DoubleNear(1, 1e-12), 0, 0));
}

TEST(SamplingTest, OfEqualOnesTopPKeepsTheFirst) {
  EXPECT_THAT(Probabilities(at::zeros({5}), Options(1, 0, 0.5)),
              ElementsAre(DoubleNear(1. / 3, 1e-12), DoubleNear(1. / 3, 1e-12),
                          DoubleNear(1. / 3, 1e-12), 0, 0));
}

TEST(SamplingTest, DrawsByTheProbabilities) {
  const at::Tensor logits = ProbabilityLogits({0.1, 0.6, 0.3});
  constexpr int kDraws = 20000;
  std::vector<double> counts(3);
  for (int i = 0; i < kDraws; ++i) {
    ++counts[*SampleToken(logits, Options(1, 0, 1), i, i % 7)];
  }
  for (const auto& [token, probability] : {std::pair(0, 0.1), {1, 0.6}}) {
    // Five standard deviations.
    EXPECT_NEAR(counts[token] / kDraws, probability,
                5 * std::sqrt(probability * (1 - probability) / kDraws));
  }
}

TEST(SamplingTest, WhatIsDrawnIsAFunctionOfSeedPositionAndText) {
  const at::Tensor logits = at::zeros({1 << 16});
  const auto draw = [&](uint64_t seed, int64_t position, int64_t sample) {
    SamplingOptions options;
    options.seed = seed;
    return *SampleToken(logits, options, position, sample);
  };
  const int64_t token = draw(3, 5, 2);
  EXPECT_EQ(draw(3, 5, 2), token);
  EXPECT_NE(draw(4, 5, 2), token);
  EXPECT_NE(draw(3, 6, 2), token);
  EXPECT_NE(draw(3, 5, 3), token);
  EXPECT_NE(draw(uint64_t{3} + (uint64_t{1} << 40), 5, 2), token);
}

TEST(SamplingTest, LogitsThatAreNoNumbersAreRefused) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {infinity, std::nan("")}) {
    EXPECT_THAT(TokenProbabilities(at::tensor({0.0, bad}), {}).status(),
                Says("the logit of token 1 is "));
  }
  EXPECT_FALSE(TokenProbabilities(at::tensor({-infinity}), {}).ok());
  EXPECT_THAT(Probabilities(at::tensor({0.0, -infinity}), {}),
              ElementsAre(1, 0));
}

TEST(SamplingTest, OptionsAreChecked) {
  EXPECT_TRUE(CheckSampling(Options(0, 0, 1)).ok());
  for (const SamplingOptions& bad :
       {Options(-1, 0, 1), Options(std::nan(""), 0, 1), Options(1, -1, 1),
        Options(1, 0, 0), Options(1, 0, 1.5), Options(1, 0, std::nan(""))}) {
    EXPECT_EQ(CheckSampling(bad).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tandem::generator_test
