// Decoding as Hugging Face's transformers does it:
// make_transformers_parity.py.

#include <fstream>
#include <vector>

#include <ATen/ops/tensor.h>

#include "core/model/layer_list.h"
#include "gtest/gtest.h"
#include "models/decoding/generator.h"
#include "models/decoding/sampling.h"
#include "models/gpt.h"
#include "nlohmann/json.hpp"
#include "tests/models/formula_values.h"

namespace tandem {
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

LayerList Layers() {
  const Json& sizes = Parity().at("sizes");
  const GptOptions options = {sizes.at("layers"), sizes.at("width"),
                              sizes.at("heads"), sizes.at("context"),
                              sizes.at("vocabulary")};
  LayerList layers = MakeLayers(*Gpt(options), 1);
  FillByFormula(layers);
  return layers;
}

TEST(TransformersParityTest, GreedyDecodingGivesItsTokens) {
  const int64_t context = Parity().at("sizes").at("context");
  for (const Json& text : Parity().at("greedy")) {
    GenerationOptions options;
    options.max_new_tokens = context;
    options.sampling.temperature = 0;
    Generator generator =
        *Generator::Read(Layers(), text.at("prompt").get<Tokens>(), context);
    EXPECT_EQ(*generator.Generate(options), text.at("tokens").get<Tokens>());
  }
}

TEST(TransformersParityTest, ProbabilitiesAreThoseOfItsWarpers) {
  const at::Tensor logits = at::tensor(
      Parity().at("logits").get<std::vector<double>>(), at::kDouble);
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
}  // namespace tandem
