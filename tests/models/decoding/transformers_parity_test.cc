// Decoding as Hugging Face's transformers does it:
// make_transformers_parity.py.

#include <ATen/ops/tensor.h>

#include <fstream>
#include <vector>

#include "core/model/layer_list.h"
#include "gtest/gtest.h"
#include "models/decoding/generator.h"
#include "models/decoding/sampling.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "nlohmann/json.hpp"
#include "tests/models/formula_values.h"

namespace tandem::transformers_parity_test {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<int64_t>;

const Json& Parity() {
  static const auto* parity = [] {
    std::ifstream file(
        "tests/models/decoding/testdata/transformers_parity.json");
    return new Json(Json::parse(file));
  }();
  return *parity;
}

LayerList Filled(const LayerSpecs& specs) {
  LayerList layers = MakeLayers(specs, 1);
  FillByFormula(layers);
  return layers;
}

LayerList Gpt2(const Json& sizes) {
  return Filled(*Gpt({sizes.at("layers"), sizes.at("width"), sizes.at("heads"),
                      sizes.at("context"), sizes.at("vocabulary")}));
}

LayerList TinyLlama(const Json& sizes) {
  LlamaOptions options;
  options.layers = sizes.at("layers");
  options.width = sizes.at("width");
  options.ffn_width = sizes.at("ffn_width");
  options.heads = sizes.at("heads");
  options.kv_heads = sizes.at("kv_heads");
  options.context = sizes.at("context");
  options.vocabulary = sizes.at("vocabulary");
  return Filled(*Llama(options));
}

void ExpectItsTokens(const Json& model, const LayerList& layers) {
  const int64_t context = model.at("sizes").at("context");
  for (const Json& text : model.at("greedy")) {
    GenerationOptions options;
    options.max_new_tokens = context;
    options.sampling.temperature = 0;
    Generator generator =
        *Generator::Read(layers, text.at("prompt").get<Tokens>(), context);
    EXPECT_EQ(*generator.Generate(options), text.at("tokens").get<Tokens>());
  }
}

TEST(TransformersParityTest, GreedyDecodingOfGpt2GivesItsTokens) {
  const Json& model = Parity().at("gpt2");
  ExpectItsTokens(model, Gpt2(model.at("sizes")));
}

TEST(TransformersParityTest, GreedyDecodingOfLlamaGivesItsTokens) {
  const Json& model = Parity().at("llama");
  ExpectItsTokens(model, TinyLlama(model.at("sizes")));
}

TEST(TransformersParityTest, ProbabilitiesAreThoseOfItsWarpers) {
  const at::Tensor logits =
      at::tensor(Parity().at("logits").get<std::vector<double>>(), at::kDouble);
  for (const Json& warped : Parity().at("warped")) {
    SamplingOptions options;
    options.temperature = warped.at("temperature");
    options.top_k = warped.at("top_k");
    options.top_p = warped.at("top_p");
    const std::vector<double> expected =
        warped.at("probabilities").get<std::vector<double>>();
    const std::vector<double> found = *TokenProbabilities(logits, options);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-12)
          << "token " << i << ", temperature " << options.temperature
          << ", top_k " << options.top_k << ", top_p " << options.top_p;
    }
  }
}

}  // namespace
}  // namespace tandem::transformers_parity_test
