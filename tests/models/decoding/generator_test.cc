// Against transformers' generate(): transformers_parity_test.

#include "models/decoding/generator.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/model/layer_list.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/layers/gpt_block.h"
#include "models/layers/token_embedding.h"
#include "models/transformer/gpt.h"

namespace tandem::generator_test {
namespace {

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

std::string ErrorOf(const absl::StatusOr<Generator>& generator) {
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
  EXPECT_THAT(ErrorOf(Generator::Read(Layers(), {}, 8)),
              HasSubstr("the prompt is empty"));
  EXPECT_THAT(ErrorOf(Generator::Read(Layers(), Prompt(9), 8)),
              HasSubstr("the prompt has 9 tokens, and the model takes 8"));
  EXPECT_FALSE(Generator::Read(Layers(), {11}, 8).ok());
  const LayerList stateless =
      MakeLayers({TokenEmbeddingLayer("wte", 11, 12, GptInitialValues(1))}, 1);
  EXPECT_THAT(ErrorOf(Generator::Read(stateless, Prompt(3), 8)),
              HasSubstr("no layer of the model asks for the KV cache"));
}

}  // namespace
}  // namespace tandem::generator_test
