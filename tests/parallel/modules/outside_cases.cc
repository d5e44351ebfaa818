#include "tests/parallel/modules/outside_cases.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/sgd.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/random/random.h"
#include "models/classification_loss.h"
#include "models/modules/batch_of_trees.h"

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
  return BatchOfTrees(TreeOf(std::make_tuple(tokens, mask)), TreeOf(targets))
      .value();
}

ModuleLayers DetectorLayers() {
  const auto net = Seeded([] { return std::make_shared<outside::Detector>(); });
  const Batch batch = DetectorBatch(0);
  const c10::IValue example = TreeOf(std::make_tuple(
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
  return BatchOfTrees(TreeOf(std::make_tuple(source, target)), tokens())
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
  const c10::IValue example = TreeOf(std::make_tuple(
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
  OutsideCase its;
  its.name = "dicts and tuples";
  its.layers = DetectorLayers;
  its.batch = DetectorBatch;
  its.loss = [](const ModuleLayers& layers) {
    const DetectorTargets targets = {at::zeros({1}), at::zeros({1})};
    return LossOf<outside::Predictions, DetectorTargets>(
        layers.outputs, *TreeForm::Of(TreeOf(targets)), DetectorLoss);
  };
  its.make = [] { return std::make_shared<outside::Detector>(); };
  its.own_loss = [](nn::Module& module, const Batch& batch) {
    const auto outputs = module.as<outside::Detector>()->forward(
        batch.inputs, batch.further_inputs.at("input[1]").toTensor());
    return DetectorLoss(outputs,
                        {batch.targets,
                         batch.further_targets.at("target[1]").toTensor()})
        .loss;
  };
  return its;
}

OutsideCase OfTranslator() {
  OutsideCase its;
  its.name = "torch::nn::Transformer";
  its.layers = TranslatorLayers;
  its.batch = TranslatorBatch;
  its.loss = [](const ModuleLayers& layers) {
    // The memory is not the last layer's: its output is one tensor.
    EXPECT_EQ(layers.outputs.paths().size(), 1u);
    return LossFunction(CrossEntropy);
  };
  its.make = [] { return std::make_shared<outside::Translator>(); };
  its.own_loss = [](nn::Module& module, const Batch& batch) {
    const Tensor logits = module.as<outside::Translator>()->forward(
        batch.inputs, batch.further_inputs.at("input[1]").toTensor());
    return CrossEntropy(logits, batch.targets).loss;
  };
  return its;
}

OutsideCase OfRecurrent() {
  OutsideCase its;
  its.name = "torch::nn::Sequential";
  its.layers = [] {
    return Value(
        LayersOf(Seeded(outside::Recurrent), TreeOf(RecurrentBatch(0).inputs)));
  };
  its.batch = RecurrentBatch;
  its.loss = [](const ModuleLayers&) { return LossFunction(CrossEntropy); };
  its.make = [] { return outside::Recurrent().ptr(); };
  its.own_loss = [](nn::Module& module, const Batch& batch) {
    const Tensor logits =
        module.as<nn::SequentialImpl>()->forward(batch.inputs);
    return CrossEntropy(logits, batch.targets).loss;
  };
  return its;
}

std::map<std::string, Tensor> CopiesOf(const nn::Module& module) {
  std::map<std::string, Tensor> copies;
  for (const auto& each : module.named_parameters()) {
    copies[each.key()] = each.value().detach().clone();
  }
  return copies;
}

std::map<std::string, Tensor> TrainedByItself(const OutsideCase& its) {
  const auto module = Seeded(its.make);
  torch::optim::SGD optimizer(module->parameters(), kOutsideRate);
  for (int step = 0; step < kOutsideSteps; ++step) {
    optimizer.zero_grad();
    its.own_loss(*module, its.batch(step)).backward();
    optimizer.step();
  }
  return CopiesOf(*module);
}

}  // namespace tandem
