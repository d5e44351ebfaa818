// GPTs and Llamas of packed documents: logits, loss and every gradient are
// those of each document alone.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "core/model/batch.h"
#include "core/model/layer_list.h"
#include "models/chunked_loss.h"
#include "models/classification_loss.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "tests/models/rounding.h"

namespace tandem::document_masks_test {
namespace {

constexpr int64_t kTokens = 12;
constexpr int64_t kVocabulary = 32;
// Lengths of the documents of two samples.
const std::vector<std::vector<int64_t>>& Documents() {
  static const auto* const documents =
      new std::vector<std::vector<int64_t>>{{5, 1, 6}, {3, 9}};
  return *documents;
}

LayerSpecs SmallGpt(bool document_masks) {
  GptOptions options;
  options.layers = 2;
  options.width = 24;
  options.heads = 3;
  options.context = kTokens;
  options.vocabulary = kVocabulary;
  options.document_masks = document_masks;
  return *Gpt(options);
}

LayerSpecs SmallLlama(bool document_masks) {
  LlamaOptions options;
  options.width = 24;
  options.ffn_width = 40;
  options.context = kTokens;
  options.vocabulary = kVocabulary;
  options.head_dim = 6;
  options.document_masks = document_masks;
  return *Llama(options);
}

LayerList InDoubles(const LayerSpecs& specs) {
  LayerList layers = MakeLayers(specs, /*seed=*/1);
  for (const Layer& layer : layers) layer.module->to(at::kDouble);
  return layers;
}

struct Packed {
  at::Tensor inputs, targets, begins;
};

Packed Samples() {
  Packed packed;
  packed.inputs = at::randint(kVocabulary, {2, kTokens}, at::kLong);
  packed.targets = at::randint(kVocabulary, {2, kTokens}, at::kLong);
  packed.begins = at::zeros_like(packed.inputs);
  for (int64_t row = 0; row < 2; ++row) {
    int64_t begin = 0;
    for (const int64_t length : Documents()[static_cast<size_t>(row)]) {
      packed.begins[row].narrow(0, begin, length).fill_(begin);
      begin += length;
      packed.targets[row][begin - 1] = kNoTarget;
    }
  }
  return packed;
}

// The logits of each document by a model that knows of none.
at::Tensor EachAlone(const LayerList& layers, const at::Tensor& inputs) {
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<at::Tensor> logits;
    for (const auto& document : inputs.narrow(0, row, 1).split_with_sizes(
             Documents()[static_cast<size_t>(row)], 1)) {
      logits.push_back(Forward(layers, document));
    }
    rows.push_back(at::cat(logits, 1));
  }
  return at::cat(rows);
}

// The mean loss of the targets that count, one by one.
at::Tensor MeanLoss(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor counts = targets.ne(kNoTarget);
  const at::Tensor losses =
      -logits.log_softmax(-1)
           .gather(-1, targets.masked_fill(~counts, 0).unsqueeze(-1))
           .squeeze(-1);
  return losses.masked_select(counts).mean();
}

void ExpectSameGradients(const LayerList& packed, const LayerList& alone) {
  const NamedTensors expected = NamedParameters(alone);
  const NamedTensors actual = NamedParameters(packed);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    EXPECT_LT(
        LargestDifference(actual[i].second.grad(), expected[i].second.grad()),
        1e-10)
        << actual[i].first;
  }
}

using Maker = LayerSpecs (*)(bool document_masks);

class DocumentMasksTest : public testing::TestWithParam<Maker> {};

TEST_P(DocumentMasksTest, PackedIsEachAlone) {
  const Packed samples = Samples();
  const LayerList alone = InDoubles(GetParam()(false));
  const at::Tensor expected = EachAlone(alone, samples.inputs);
  const at::Tensor expected_loss = MeanLoss(expected, samples.targets);
  expected_loss.backward();

  const LayerList layers = InDoubles(GetParam()(true));
  const at::Tensor logits =
      Forward(layers, samples.inputs, {{kDocumentBegins, samples.begins}});
  EXPECT_LT(LargestDifference(logits, expected), 1e-10);
  const LossResult result =
      CrossEntropyIgnoring(kNoTarget)(logits, samples.targets);
  EXPECT_LT(LargestDifference(result.loss, expected_loss), 1e-10);
  result.loss.backward();
  ExpectSameGradients(layers, alone);
}

TEST_P(DocumentMasksTest, LossInChunksIsTheSame) {
  const Packed samples = Samples();
  const LayerList alone = InDoubles(GetParam()(false));
  const at::Tensor expected =
      MeanLoss(EachAlone(alone, samples.inputs), samples.targets);
  expected.backward();

  const LayerList layers = InDoubles(*WithoutLogits(GetParam()(true)));
  const auto [x, left] =
      ForwardWithSkips(layers, samples.inputs,
                       {{kDocumentBegins, samples.begins}}, {"lm_head.weight"});
  const LossFunction loss =
      ChunkedCrossEntropy("lm_head.weight", /*chunk=*/5, kNoTarget);
  EXPECT_EQ(loss.weight()(samples.targets), 24 - 5);
  const LossResult result = loss({x, left, samples.targets, {}});
  EXPECT_LT(LargestDifference(result.loss, expected), 1e-10);
  result.loss.backward();
  ExpectSameGradients(layers, alone);
}

INSTANTIATE_TEST_SUITE_P(All, DocumentMasksTest,
                         testing::Values(SmallGpt, SmallLlama));

}  // namespace
}  // namespace tandem::document_masks_test
