// Cases of modules that this project did not write: as layers, with batches and
// a loss, and as their classes have them.

#ifndef TANDEM_TESTS_PARALLEL_MODULES_OUTSIDE_CASES_H_
#define TANDEM_TESTS_PARALLEL_MODULES_OUTSIDE_CASES_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>

#include "core/loss/loss.h"
#include "core/model/batch.h"
#include "core/random/default_generator.h"
#include "models/modules/layers_of.h"
#include "tests/parallel/modules/outside_modules.h"

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

inline void PrintTo(const OutsideCase& its, std::ostream* out) {
  *out << its.name;
}

OutsideCase OfDetector();    // dicts, tuples and a list
OutsideCase OfTranslator();  // torch::nn::Transformer's encoder and decoder
OutsideCase OfRecurrent();   // torch::nn::Sequential, with a GRU's tuple

using DetectorTargets = std::tuple<at::Tensor, at::Tensor>;
LossResult DetectorLoss(const outside::Predictions& outputs,
                        const DetectorTargets& targets);

std::map<std::string, at::Tensor> CopiesOf(const torch::nn::Module& module);

// The module by itself, as a program of LibTorch alone trains it.
std::map<std::string, at::Tensor> TrainedByItself(const OutsideCase& its);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MODULES_OUTSIDE_CASES_H_
