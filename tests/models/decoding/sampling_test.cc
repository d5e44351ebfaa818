// Against transformers' warpers: transformers_parity_test.

#include "models/decoding/sampling.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::sampling_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

SamplingOptions Options(double temperature, int64_t top_k, double top_p) {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  return options;
}

// Logits whose probabilities are given, at temperature 1.
at::Tensor LogitsOf(std::vector<double> probabilities) {
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
  EXPECT_THAT(Probabilities(LogitsOf({0.2, 0.8}), Options(0.5, 0, 1)),
              ElementsAre(DoubleNear(0.04 / 0.68, 1e-12),
                          DoubleNear(0.64 / 0.68, 1e-12)));
  // This is as good as greedy, without an overflow.
  EXPECT_THAT(Probabilities(at::tensor({-1e4, 0.0}), Options(1e-300, 0, 1)),
              ElementsAre(0, 1));
}

TEST(SamplingTest, TopPKeepsTheFewestThatSuffice) {
  const at::Tensor logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
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
  const at::Tensor logits = LogitsOf({0.1, 0.6, 0.3});
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
    EXPECT_THAT(
        std::string(
            TokenProbabilities(at::tensor({0.0, bad}), {}).status().message()),
        HasSubstr("the logit of token 1 is "));
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
}  // namespace tandem::sampling_test
