#include "tests/parallel/modules/outside_modules.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/softmax.h>
#include <torch/nn/modules/activation.h>

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
