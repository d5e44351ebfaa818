#include "core/meta/flops.h"

#include <string>

#include "core/meta/shapes.h"
#include "gtest/gtest.h"
#include "models/registry.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/sizes.h"

namespace tandem::flops_test {
namespace {

double OfImages(const std::string& name, int64_t size) {
  ModelOptions options;
  options.name = name;
  options.input_shape = {3, size, size};
  options.classes = 1000;
  return *ForwardFlops(*MakeModel(options), options.input_shape, at::kFloat);
}

// 2 * tokens * (parameters of products) + both products of attention.
TEST(ForwardFlopsTest, OfAGptAreTheClosedForm) {
  const GptOptions gpt;
  for (const int64_t tokens : {1, 7, 128}) {
    const double products =
        12 * gpt.layers * gpt.width * gpt.width + gpt.vocabulary * gpt.width;
    const double attention = 2 * gpt.layers * tokens * gpt.width;
    EXPECT_EQ(*ForwardFlops(*Gpt(gpt), {tokens}, at::kLong),
              2 * tokens * (products + attention))
        << tokens;
  }
}

// PaLM's estimate, 6 N + 12 L H Q T a token, of GPT-2 (124M) and a Llama: N has
// no table that is only looked up, and nearly all of it are products.
TEST(ForwardFlopsTest, ThreePassesAreSixNAndAttentions) {
  const double tokens = 1024;
  const GptOptions gpt = *GptSize("gpt2");
  const double gpts =
      static_cast<double>(CountParameters(*ModelShapes(*Gpt(gpt))));
  EXPECT_EQ(gpts, 124439808);
  const double gpt_token = 6 * (gpts - gpt.context * gpt.width) +
                           12.0 * gpt.layers * gpt.width * tokens;
  EXPECT_NEAR(3 * *ForwardFlops(*Gpt(gpt), {1024}, at::kLong),
              tokens * gpt_token, 1e-3 * tokens * gpt_token);
  const LlamaOptions llama = *LlamaSize("tinyllama");
  const double llamas =
      static_cast<double>(CountParameters(*ModelShapes(*Llama(llama))));
  const double llama_token = 6 * (llamas - llama.vocabulary * llama.width) +
                             12.0 * llama.layers * llama.width * tokens;
  EXPECT_NEAR(3 * *ForwardFlops(*Llama(llama), {1024}, at::kLong),
              tokens * llama_token, 1e-3 * tokens * llama_token);
}

// Grouped-query attention has fewer keys, not fewer scores.
TEST(ForwardFlopsTest, OfLlama70bAreTheClosedForm) {
  const LlamaOptions llama = *LlamaSize("llama-3-70b");
  const double width = llama.width;
  const double keys = 1024;
  const double block =
      2 * width * width + 2 * width * keys + 3 * width * llama.ffn_width;
  const double products = llama.layers * block + llama.vocabulary * width;
  const double tokens = 64;
  EXPECT_DOUBLE_EQ(*ForwardFlops(*Llama(llama), {64}, at::kLong),
                   2 * tokens * (products + 2 * llama.layers * tokens * width));
}

// 1.814 and 4.089 billion multiplications, as published.
TEST(ForwardFlopsTest, OfResnetsAreTheirConvolutions) {
  EXPECT_EQ(OfImages("resnet18", 224), 2 * 1814073344.0);
  EXPECT_EQ(OfImages("resnet50", 224), 2 * 4089184256.0);
}

TEST(ForwardFlopsTest, AnInputThatDoesNotFitIsAnError) {
  EXPECT_EQ(ForwardFlops(*Gpt({}), {1, 2, 3}, at::kFloat).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::flops_test
