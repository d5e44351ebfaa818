// GPT-2 and Llama against Hugging Face's transformers, ViT against
// torchvision's: names, logits, loss and every gradient, tied and not, grouped
// queries and not, with Llama 3's scaled positions, and of documents packed
// side by side. make_transformers_parity.py wrote down what those give.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/model/batch.h"
#include "core/model/layer_list.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/training_memory.h"
#include "models/transformer/vit.h"
#include "tests/models/formula_values.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kBatch = 2;
constexpr int64_t kTokens = 9;
constexpr int64_t kVocabulary = 13;

GptOptions SmallGpt(bool ties) {
  return {/*layers=*/2,   /*width=*/24, /*heads=*/3,
          /*context=*/16, kVocabulary,  ties};
}

LlamaOptions SmallLlama(int64_t kv_heads) {
  LlamaOptions options;
  options.layers = 2;
  options.width = 24;
  options.ffn_width = 40;
  options.heads = 6;
  options.kv_heads = kv_heads;
  options.vocabulary = kVocabulary;
  options.context = 16;
  return options;
}

LlamaOptions TiedLlama() {
  LlamaOptions options = SmallLlama(6);
  options.ties_lm_head = true;
  return options;
}

// All three kinds of wave: kept, divided, and between.
LlamaOptions ScaledLlama() {
  LlamaOptions options = SmallLlama(3);
  options.width = 48;
  options.ties_lm_head = true;
  options.rope_theta = 100;
  options.rope_scaling = Llama3RopeScaling{8, 1, 4, 40};
  return options;
}

LlamaOptions BiasedLlama() {
  LlamaOptions options = SmallLlama(1);
  options.head_dim = 10;
  options.attention_bias = true;
  options.mlp_bias = true;
  return options;
}

// Documents lie side by side.
GptOptions PackedGpt() {
  GptOptions options = SmallGpt(false);
  options.document_masks = true;
  return options;
}

LlamaOptions PackedLlama() {
  LlamaOptions options = SmallLlama(2);
  options.document_masks = true;
  return options;
}

VitOptions SmallVit() {
  return {/*image_size=*/32, /*patch_size=*/8, /*in_channels=*/3,
          /*layers=*/2,      /*heads=*/3,      /*width=*/24,
          /*ffn_width=*/40,  /*classes=*/5};
}

struct Case {
  std::string name;
  LayerSpecs specs;
  int64_t parameters;
};

Case ParityCase(const std::string& name, const GptOptions& options) {
  return {name, *Gpt(options), ParameterCount(options)};
}

Case ParityCase(const std::string& name, const LlamaOptions& options) {
  return {name, *Llama(options), ParameterCount(options)};
}

Case ParityCase(const std::string& name, const VitOptions& options) {
  return {name, *Vit(options), ParameterCount(options)};
}

struct Samples {
  at::Tensor inputs, targets;
  Skips further = {};
};

// make_transformers_parity.py's BEGINS.
void Pack(Samples& samples) {
  const at::Tensor begins = at::tensor({0, 0, 0, 0, 4, 5, 5, 5, 5,  //
                                        0, 0, 0, 0, 0, 0, 0, 7, 7},
                                       at::kLong)
                                .view({kBatch, kTokens});
  const at::Tensor ends =
      begins.narrow(1, 1, kTokens - 1).ne(begins.narrow(1, 0, kTokens - 1));
  samples.targets.narrow(1, 0, kTokens - 1).masked_fill_(ends, kNoTarget);
  samples.further[kDocumentBegins] = begins;
}

Samples SamplesFor(const std::string& name, at::ScalarType dtype) {
  if (name == "vit") {
    const at::Tensor images = at::empty({3, 3, 32, 32});
    FillByFormula("input", images);
    return {images.to(dtype), at::arange(3, at::kLong)};
  }
  const at::Tensor index =
      at::arange(kBatch * kTokens, at::kLong).view({kBatch, kTokens});
  const at::Tensor tokens = (index * index * 3 + index * 7) % kVocabulary;
  Samples samples = {tokens, (tokens * 5 + 1) % kVocabulary};
  if (absl::EndsWith(name, "_packed")) Pack(samples);
  return samples;
}

std::vector<Case> Cases() {
  return {ParityCase("gpt2", SmallGpt(false)),
          ParityCase("gpt2_tied", SmallGpt(true)),
          ParityCase("llama", SmallLlama(6)),
          ParityCase("llama_tied", TiedLlama()),
          ParityCase("llama_grouped", SmallLlama(2)),
          ParityCase("llama_grouped_tied_scaled", ScaledLlama()),
          ParityCase("llama_head_dim_biases", BiasedLlama()),
          ParityCase("gpt2_packed", PackedGpt()),
          ParityCase("llama_grouped_packed", PackedLlama()),
          ParityCase("vit", SmallVit())};
}

double Tolerance(at::ScalarType dtype) {
  return dtype == at::kFloat ? 1e-4 : 1e-8;
}

class TransformersParityTest : public testing::TestWithParam<Case> {
 protected:
  json Expected() const {
    std::ifstream file(
        "tests/models/transformer/testdata/transformers_parity.json");
    return json::parse(file).at(GetParam().name);
  }

  void ExpectNumbers(at::ScalarType dtype, const json& expected) const {
    const LayerList layers = MakeLayers(GetParam().specs, 1);
    FillByFormula(layers, dtype);
    const Samples samples = SamplesFor(GetParam().name, dtype);
    const at::Tensor logits = Forward(layers, samples.inputs, samples.further);
    ExpectNear(logits, expected.at("logits"), Tolerance(dtype));
    const LossResult result =
        samples.further.empty()
            ? CrossEntropy(logits, samples.targets)
            : CrossEntropyIgnoring(kNoTarget)(logits, samples.targets);
    EXPECT_NEAR(result.score.loss(), expected.at("loss").get<double>(),
                Tolerance(dtype));
    result.loss.backward();
    ExpectGradients(layers, dtype, expected.at("gradients"));
  }

 private:
  static void ExpectNear(const at::Tensor& actual, const json& expected,
                         double tolerance) {
    const auto values = expected.get<std::vector<double>>();
    ASSERT_EQ(actual.numel(), static_cast<int64_t>(values.size()));
    const at::Tensor errors = actual.detach().to(at::kDouble).flatten() -
                              at::tensor(values, at::kDouble);
    EXPECT_LE(errors.abs().max().item<double>(), tolerance);
  }

  // Compares of each gradient the norm, the inner product with the formula's
  // values, and the first elements, relative to the norm.
  static void ExpectGradients(const LayerList& layers, at::ScalarType dtype,
                              const json& expected) {
    size_t found = 0;
    for (const auto& [name, parameter] : NamedParameters(layers)) {
      if (!expected.contains(name)) {  // a tied head: it has one name there
        EXPECT_EQ(name, "lm_head.weight");
        continue;
      }
      ++found;
      SCOPED_TRACE(name);
      const at::Tensor gradient = parameter.grad().to(at::kDouble).contiguous();
      at::Tensor probe = at::empty(gradient.sizes());
      FillByFormula(name + ".probe", probe);
      const double norm = gradient.norm().item<double>();
      std::vector<double> actual = {norm,
                                    (gradient * probe).sum().item<double>()};
      for (int i = 0; i < 4; ++i) {
        actual.push_back(gradient.flatten()[i].item<double>());
      }
      ExpectNear(at::tensor(actual, at::kDouble), expected.at(name),
                 Tolerance(dtype) * (1 + norm));
    }
    EXPECT_EQ(found, expected.size());
  }
};

TEST_P(TransformersParityTest, InFloatWithin1e4) {
  ExpectNumbers(at::kFloat, Expected().at("float"));
}

TEST_P(TransformersParityTest, InDoubleWithin1e8) {
  ExpectNumbers(at::kDouble, Expected().at("double"));
}

TEST_P(TransformersParityTest, HasItsNumberOfParameters) {
  EXPECT_EQ(GetParam().parameters, Expected().at("parameters").get<int64_t>());
}

INSTANTIATE_TEST_SUITE_P(All, TransformersParityTest,
                         testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
