// Modules as users of torch::nn write them, who know nothing of this project:
// dicts and tuples between children, an encoder and a decoder, an RNN.

#ifndef TANDEM_TESTS_PARALLEL_MODULES_OUTSIDE_MODULES_H_
#define TANDEM_TESTS_PARALLEL_MODULES_OUTSIDE_MODULES_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "core/loss/loss.h"
#include "core/model/batch.h"
#include "core/random/default_generator.h"
#include "models/modules/layers_of.h"

namespace outside {

using torch::Tensor;
using Features = std::map<std::string, Tensor>;
using Predictions = torch::OrderedDict<std::string, Tensor>;

constexpr int64_t kVocabulary = 11;
constexpr int64_t kWidth = 8;
constexpr int64_t kTokens = 5;
constexpr int64_t kClasses = 4;

// Tokens, of which a mask says which count, to a class and a box.
struct StemImpl : torch::nn::Module {
  StemImpl();
  Features forward(const Tensor& tokens, const Tensor& mask);
  torch::nn::Embedding embedding{nullptr};
};

// A dict to a dict; the mask goes on.
struct MixerImpl : torch::nn::Module {
  MixerImpl();
  Features forward(Features features);
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Conv1d mix{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};

// A dict to a tuple: what is pooled, and how many tokens count.
struct PoolImpl : torch::nn::Module {
  PoolImpl();
  std::tuple<Tensor, Tensor> forward(const Features& features);
  torch::nn::Linear scores{nullptr};
};

// Two arguments to a list.
struct NeckImpl : torch::nn::Module {
  NeckImpl();
  std::vector<Tensor> forward(const Tensor& pooled, const Tensor& count) const;
  std::shared_ptr<torch::nn::LinearImpl> left, right;
};

// A list to a dict in its own order.
struct HeadsImpl : torch::nn::Module {
  HeadsImpl();
  Predictions forward(const std::vector<Tensor>& parts);
  torch::nn::Linear classes{nullptr}, boxes{nullptr};
};

struct Detector : torch::nn::Module {
  Detector();
  Predictions forward(const Tensor& tokens, const Tensor& mask);
  std::shared_ptr<StemImpl> stem;
  torch::nn::ModuleList mixers{nullptr};
  std::shared_ptr<PoolImpl> pool;
  std::shared_ptr<NeckImpl> neck;
  std::shared_ptr<HeadsImpl> heads;
};

// Both of a pair's token sequences as torch::nn::Transformer has them: [tokens,
// samples, width].
struct PairEmbeddingImpl : torch::nn::Module {
  PairEmbeddingImpl();
  std::tuple<Tensor, Tensor> forward(const Tensor& source,
                                     const Tensor& target);
  torch::nn::Embedding words{nullptr}, places{nullptr};
};

// Logits [samples, tokens, words].
struct WordsImpl : torch::nn::Module {
  WordsImpl();
  Tensor forward(const Tensor& x);
  torch::nn::Linear linear{nullptr};
};

// An encoder and a decoder around torch::nn::Transformer.
struct Translator : torch::nn::Module {
  Translator();
  Tensor forward(const Tensor& source, const Tensor& target);
  std::shared_ptr<PairEmbeddingImpl> embed;
  torch::nn::Transformer transformer{nullptr};
  std::shared_ptr<WordsImpl> words;
};

// The last state of what an RNN gives.
struct LastStateImpl : torch::nn::Module {
  Tensor forward(const std::tuple<Tensor, Tensor>& output_and_state);
};

// Sequences [samples, tokens, kWidth] to a class.
torch::nn::Sequential Recurrent();

}  // namespace outside

// Cases of modules that this project did not write: as layers, with batches and
// a loss, and as their classes have them.

namespace tandem {

constexpr uint64_t kOutsideSeed = 3;
constexpr double kOutsideRate = 0.1;
constexpr int kOutsideSteps = 3;
constexpr int64_t kOutsideSamples = 24;  // of a batch

// Values of every rank's module are the same here, as those of a program that
// seeds its generator are.
template <typename Make>
auto Seeded(const Make& make, uint64_t seed = kOutsideSeed) {
  const DefaultGeneratorScope draws(seed);
  return make();
}

// One of the modules: as layers, and as its class has it.
struct OutsideCase {
  std::string name;
  std::function<ModuleLayers()> layers;
  std::function<Batch(int number)> batch;
  std::function<LossFunction(const ModuleLayers&)> loss;
  // Its own forward, and the loss of it, as a program without layers has them.
  std::function<std::shared_ptr<torch::nn::Module>()> make;
  std::function<at::Tensor(torch::nn::Module& module, const Batch& batch)>
      own_loss;
};

inline void PrintTo(const OutsideCase& outside_case, std::ostream* out) {
  *out << outside_case.name;
}

OutsideCase OfDetector();    // dicts, tuples and a list
OutsideCase OfTranslator();  // torch::nn::Transformer's encoder and decoder
OutsideCase OfRecurrent();   // torch::nn::Sequential, with a GRU's tuple

using DetectorTargets = std::tuple<at::Tensor, at::Tensor>;
LossResult DetectorLoss(const outside::Predictions& outputs,
                        const DetectorTargets& targets);

std::map<std::string, at::Tensor> CopiesOf(const torch::nn::Module& module);

// The module by itself, as a program of LibTorch alone trains it.
std::map<std::string, at::Tensor> TrainedByItself(
    const OutsideCase& outside_case);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MODULES_OUTSIDE_MODULES_H_
