#include "tests/parallel/modules/outside_modules.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/sgd.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/random/random.h"
#include "models/classification_loss.h"
#include "models/modules/batch_of_trees.h"

namespace outside {

namespace nn = torch::nn;

StemImpl::StemImpl() {
  embedding = register_module("embedding", nn::Embedding(kVocabulary, kWidth));
}

Features StemImpl::forward(const Tensor& tokens, const Tensor& mask) {
  return {{"x", embedding(tokens)}, {"mask", mask}};
}

MixerImpl::MixerImpl() {
  norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  mix = register_module("mix", nn::Conv1d(kTokens, kTokens, 1));
  up = register_module("up", nn::Linear(kWidth, 2 * kWidth));
  down = register_module("down", nn::Linear(2 * kWidth, kWidth));
}

Features MixerImpl::forward(Features features) {
  Tensor x = features.at("x");
  x = x + mix(norm(x)) * features.at("mask").unsqueeze(2);
  features["x"] = x + down(at::gelu(up(x)));
  return features;
}

PoolImpl::PoolImpl() {
  scores = register_module(
      "scores", nn::Linear(nn::LinearOptions(kWidth, 1).bias(false)));
}

std::tuple<Tensor, Tensor> PoolImpl::forward(const Features& features) {
  const Tensor& x = features.at("x");
  const Tensor& mask = features.at("mask");
  const Tensor weights = at::softmax(scores(x).squeeze(2) - 9 * (1 - mask), 1);
  return {(x * weights.unsqueeze(2)).sum(1),
          mask.sum(1, /*keepdim=*/true).to(at::kLong)};
}

NeckImpl::NeckImpl()
    : left(
          register_module("left", std::make_shared<nn::LinearImpl>(kWidth, 6))),
      right(register_module("right",
                            std::make_shared<nn::LinearImpl>(kWidth, 3))) {}

std::vector<Tensor> NeckImpl::forward(const Tensor& pooled,
                                      const Tensor& count) const {
  return {left->forward(pooled).tanh(),
          right->forward(pooled) / count.clamp_min(1)};
}

HeadsImpl::HeadsImpl() {
  classes = register_module("classes", nn::Linear(9, kClasses));
  boxes = register_module("boxes", nn::Linear(6, 2));
}

Predictions HeadsImpl::forward(const std::vector<Tensor>& parts) {
  Predictions predictions;
  predictions.insert("classes", classes(at::cat(parts, 1)));
  predictions.insert("boxes", boxes(parts[0]).sigmoid());
  return predictions;
}

Detector::Detector() {
  stem = register_module("stem", std::make_shared<StemImpl>());
  mixers = register_module("mixers", nn::ModuleList());
  for (int i = 0; i < 3; ++i) mixers->push_back(std::make_shared<MixerImpl>());
  pool = register_module("pool", std::make_shared<PoolImpl>());
  neck = register_module("neck", std::make_shared<NeckImpl>());
  heads = register_module("heads", std::make_shared<HeadsImpl>());
}

Predictions Detector::forward(const Tensor& tokens, const Tensor& mask) {
  Features features = stem->forward(tokens, mask);
  for (const auto& mixer : *mixers) {
    features = mixer->as<MixerImpl>()->forward(features);
  }
  const auto [pooled, count] = pool->forward(features);
  return heads->forward(neck->forward(pooled, count));
}

PairEmbeddingImpl::PairEmbeddingImpl() {
  words = register_module("words", nn::Embedding(kVocabulary, kWidth));
  places = register_module("places", nn::Embedding(kTokens, kWidth));
}

std::tuple<Tensor, Tensor> PairEmbeddingImpl::forward(const Tensor& source,
                                                      const Tensor& target) {
  const auto embedded = [this](const Tensor& tokens) {
    const Tensor place = at::arange(tokens.size(1), tokens.options());
    return (words(tokens) + places(place)).transpose(0, 1);
  };
  return {embedded(source), embedded(target)};
}

WordsImpl::WordsImpl() {
  linear = register_module("linear", nn::Linear(kWidth, kVocabulary));
}

Tensor WordsImpl::forward(const Tensor& x) { return linear(x.transpose(0, 1)); }

Translator::Translator() {
  embed = register_module("embed", std::make_shared<PairEmbeddingImpl>());
  transformer = register_module(
      "transformer", nn::Transformer(nn::TransformerOptions(kWidth, 2)
                                         .num_encoder_layers(2)
                                         .num_decoder_layers(2)
                                         .dim_feedforward(12)
                                         .dropout(0)));
  words = register_module("words", std::make_shared<WordsImpl>());
}

Tensor Translator::forward(const Tensor& source, const Tensor& target) {
  const auto [from, to] = embed->forward(source, target);
  return words->forward(transformer(from, to));
}

Tensor LastStateImpl::forward(
    const std::tuple<Tensor, Tensor>& output_and_state) {
  return std::get<1>(output_and_state).squeeze(0);
}

nn::Sequential Recurrent() {
  return nn::Sequential(
      nn::Linear(kWidth, kWidth), nn::Tanh(),
      nn::GRU(nn::GRUOptions(kWidth, kWidth).batch_first(true)),
      LastStateImpl(), nn::Linear(kWidth, kWidth), nn::ReLU(),
      nn::Linear(kWidth, kClasses));
}

}  // namespace outside

namespace tandem {
namespace {

using at::Tensor;
using outside::kClasses;
using outside::kTokens;
using outside::kVocabulary;
using outside::kWidth;

namespace nn = torch::nn;

at::Generator Draws(int number) {
  return GeneratorFor(kOutsideSeed, absl::StrCat("batch ", number));
}

ModuleLayers Value(const absl::StatusOr<ModuleLayers>& layers) {
  EXPECT_TRUE(layers.ok()) << layers.status();
  return layers.value();
}

Batch DetectorBatch(int number) {
  const at::Generator draws = Draws(number);
  const Tensor tokens =
      at::randint(kVocabulary, {kOutsideSamples, kTokens}, draws, at::kLong);
  const Tensor mask =
      at::rand({kOutsideSamples, kTokens}, draws).gt(0.3).to(at::kFloat);
  const DetectorTargets targets = {
      at::randint(kClasses, {kOutsideSamples}, draws, at::kLong),
      at::rand({kOutsideSamples, 2}, draws)};
  return BatchOfTrees(ToTree(std::make_tuple(tokens, mask)), ToTree(targets))
      .value();
}

ModuleLayers DetectorLayers() {
  const auto net = Seeded([] { return std::make_shared<outside::Detector>(); });
  const Batch batch = DetectorBatch(0);
  const c10::IValue example = ToTree(std::make_tuple(
      batch.inputs, batch.further_inputs.at("input[1]").toTensor()));
  return Value(
      LayersOf<outside::StemImpl, outside::MixerImpl, outside::PoolImpl,
               outside::NeckImpl, outside::HeadsImpl>(
          net, {"stem", "mixers.*", "pool", "neck", "heads"}, example));
}

Batch TranslatorBatch(int number) {
  const at::Generator draws = Draws(number);
  const auto tokens = [&] {
    return at::randint(kVocabulary, {kOutsideSamples, kTokens}, draws,
                       at::kLong);
  };
  const Tensor source = tokens(), target = tokens();
  return BatchOfTrees(ToTree(std::make_tuple(source, target)), tokens())
      .value();
}

// The encoder's layers pass the target on; the decoder's pass on what the
// encoder came to.
ModuleCalls TranslatorCalls() {
  using Pair = std::map<std::string, Tensor>;
  ModuleCalls calls;
  calls.Add([](outside::PairEmbeddingImpl& embed, const Tensor& source,
               const Tensor& target) {
    const auto [from, to] = embed.forward(source, target);
    return Pair{{"x", from}, {"target", to}};
  });
  calls.Add([](nn::TransformerEncoderLayerImpl& layer, Pair pair) {
    pair["x"] = layer.forward(pair["x"]);
    return pair;
  });
  calls.Add([](nn::LayerNormImpl& norm, Pair pair) {
    pair["x"] = norm.forward(pair["x"]);
    return pair;
  });
  calls.Add([](nn::TransformerDecoderLayerImpl& layer, Pair pair) {
    const auto target = pair.extract("target");
    if (!target.empty()) {
      pair["memory"] = std::exchange(pair["x"], target.mapped());
    }
    pair["x"] = layer.forward(pair["x"], pair["memory"]);
    return pair;
  });
  calls.Add([](outside::WordsImpl& words, const Pair& pair) {
    return words.forward(pair.at("x"));
  });
  return calls;
}

ModuleLayers TranslatorLayers() {
  const auto net =
      Seeded([] { return std::make_shared<outside::Translator>(); });
  const Batch batch = TranslatorBatch(0);
  const c10::IValue example = ToTree(std::make_tuple(
      batch.inputs, batch.further_inputs.at("input[1]").toTensor()));
  return Value(LayersOf(
      net,
      {"embed", "transformer.encoder.layers.*", "transformer.encoder.norm",
       "transformer.decoder.layers.*", "transformer.decoder.norm", "words"},
      TranslatorCalls(), example));
}

Batch RecurrentBatch(int number) {
  const at::Generator draws = Draws(number);
  return {at::randn({kOutsideSamples, kTokens, kWidth}, draws),
          at::randint(kClasses, {kOutsideSamples}, draws, at::kLong),
          kOutsideSamples};
}

}  // namespace

LossResult DetectorLoss(const outside::Predictions& outputs,
                        const DetectorTargets& targets) {
  LossResult result = CrossEntropy(outputs["classes"], std::get<0>(targets));
  result.loss =
      result.loss + at::mse_loss(outputs["boxes"], std::get<1>(targets));
  return result;
}

OutsideCase OfDetector() {
  OutsideCase detector;
  detector.name = "dicts and tuples";
  detector.layers = DetectorLayers;
  detector.batch = DetectorBatch;
  detector.loss = [](const ModuleLayers& layers) {
    const DetectorTargets targets = {at::zeros({1}), at::zeros({1})};
    return LossOf<outside::Predictions, DetectorTargets>(
        layers.outputs, *TreeForm::Of(ToTree(targets)), DetectorLoss);
  };
  detector.make = [] { return std::make_shared<outside::Detector>(); };
  detector.own_loss = [](nn::Module& module, const Batch& batch) {
    const auto outputs = module.as<outside::Detector>()->forward(
        batch.inputs, batch.further_inputs.at("input[1]").toTensor());
    return DetectorLoss(outputs,
                        {batch.targets,
                         batch.further_targets.at("target[1]").toTensor()})
        .loss;
  };
  return detector;
}

OutsideCase OfTranslator() {
  OutsideCase translator;
  translator.name = "torch::nn::Transformer";
  translator.layers = TranslatorLayers;
  translator.batch = TranslatorBatch;
  translator.loss = [](const ModuleLayers& layers) {
    // The memory is not the last layer's: its output is one tensor.
    EXPECT_EQ(layers.outputs.paths().size(), 1u);
    return LossFunction(CrossEntropy);
  };
  translator.make = [] { return std::make_shared<outside::Translator>(); };
  translator.own_loss = [](nn::Module& module, const Batch& batch) {
    const Tensor logits = module.as<outside::Translator>()->forward(
        batch.inputs, batch.further_inputs.at("input[1]").toTensor());
    return CrossEntropy(logits, batch.targets).loss;
  };
  return translator;
}

OutsideCase OfRecurrent() {
  OutsideCase recurrent;
  recurrent.name = "torch::nn::Sequential";
  recurrent.layers = [] {
    return Value(
        LayersOf(Seeded(outside::Recurrent), ToTree(RecurrentBatch(0).inputs)));
  };
  recurrent.batch = RecurrentBatch;
  recurrent.loss = [](const ModuleLayers&) {
    return LossFunction(CrossEntropy);
  };
  recurrent.make = [] { return outside::Recurrent().ptr(); };
  recurrent.own_loss = [](nn::Module& module, const Batch& batch) {
    const Tensor logits =
        module.as<nn::SequentialImpl>()->forward(batch.inputs);
    return CrossEntropy(logits, batch.targets).loss;
  };
  return recurrent;
}

std::map<std::string, Tensor> CopiesOf(const nn::Module& module) {
  std::map<std::string, Tensor> copies;
  for (const auto& each : module.named_parameters()) {
    copies[each.key()] = each.value().detach().clone();
  }
  return copies;
}

std::map<std::string, Tensor> TrainedByItself(const OutsideCase& outside_case) {
  const auto module = Seeded(outside_case.make);
  torch::optim::SGD optimizer(module->parameters(), kOutsideRate);
  for (int step = 0; step < kOutsideSteps; ++step) {
    optimizer.zero_grad();
    outside_case.own_loss(*module, outside_case.batch(step)).backward();
    optimizer.step();
  }
  return CopiesOf(*module);
}

}  // namespace tandem
