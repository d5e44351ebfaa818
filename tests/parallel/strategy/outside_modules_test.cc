// Modules that this project did not write, in every layout, with no change to
// their classes.

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

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/random/default_generator.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/modules/batch_of_trees.h"
#include "models/modules/layers_of.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/microbatches.h"
#include "tests/parallel/strategy/outside_modules.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

using at::Tensor;
using outside::kClasses;
using outside::kTokens;
using outside::kVocabulary;
using outside::kWidth;

namespace nn = torch::nn;

constexpr uint64_t kSeed = 3;
constexpr double kRate = 0.1;
constexpr int kSteps = 3;
constexpr int64_t kSamples = 24;

// Values of every rank's module are the same here, as those of a program that
// seeds its generator are.
template <typename Make>
auto Seeded(const Make& make, uint64_t seed = kSeed) {
  const DefaultGeneratorScope draws(seed);
  return make();
}

at::Generator Draws(int number) {
  return GeneratorFor(kSeed, absl::StrCat("batch ", number));
}

using Targets = std::tuple<Tensor, Tensor>;

LossResult DetectorLoss(const outside::Predictions& outputs,
                        const Targets& targets) {
  LossResult result =
      CrossEntropy(outputs["classes"], std::get<0>(targets));
  result.loss =
      result.loss + at::mse_loss(outputs["boxes"], std::get<1>(targets));
  return result;
}

// One of the modules: as layers, and as its class has it.
struct Case {
  std::string name;
  std::function<ModuleLayers()> layers;
  std::function<Batch(int number)> batch;
  // Null: the loss's arguments are one output and one target.
  std::function<LossFunction(const ModuleLayers&)> loss;
  // Its own forward, and the loss of it, as a program without layers has them.
  std::function<std::shared_ptr<nn::Module>()> make;
  std::function<Tensor(nn::Module& module, const Batch& batch)> own_loss;
};

void PrintTo(const Case& its, std::ostream* out) { *out << its.name; }

ModuleLayers Value(const absl::StatusOr<ModuleLayers>& layers) {
  EXPECT_TRUE(layers.ok()) << layers.status();
  return layers.value();
}

Batch DetectorBatch(int number) {
  const at::Generator draws = Draws(number);
  const Tensor tokens =
      at::randint(kVocabulary, {kSamples, kTokens}, draws, at::kLong);
  const Tensor mask =
      at::rand({kSamples, kTokens}, draws).gt(0.3).to(at::kFloat);
  const Targets targets = {at::randint(kClasses, {kSamples}, draws, at::kLong),
                           at::rand({kSamples, 2}, draws)};
  return BatchOfTrees(TreeOf(std::make_tuple(tokens, mask)), TreeOf(targets))
      .value();
}

ModuleLayers DetectorLayers() {
  const auto net = Seeded([] { return std::make_shared<outside::Detector>(); });
  const Batch batch = DetectorBatch(0);
  const c10::IValue example = TreeOf(std::make_tuple(
      batch.inputs, batch.further_inputs.at("input[1]").toTensor()));
  return Value(LayersOf<outside::StemImpl, outside::MixerImpl,
                        outside::PoolImpl, outside::NeckImpl,
                        outside::HeadsImpl>(
      net, {"stem", "mixers.*", "pool", "neck", "heads"}, example));
}

Case OfDetector() {
  Case its;
  its.name = "dicts and tuples";
  its.layers = DetectorLayers;
  its.batch = DetectorBatch;
  its.loss = [](const ModuleLayers& layers) {
    const Targets targets = {at::zeros({1}), at::zeros({1})};
    return LossOf<outside::Predictions, Targets>(
        layers.outputs, *TreeForm::Of(TreeOf(targets)), DetectorLoss);
  };
  its.make = [] { return std::make_shared<outside::Detector>(); };
  its.own_loss = [](nn::Module& module, const Batch& batch) {
    const auto outputs = module.as<outside::Detector>()->forward(
        batch.inputs, batch.further_inputs.at("input[1]").toTensor());
    return DetectorLoss(
               outputs,
               {batch.targets,
                batch.further_targets.at("target[1]").toTensor()})
        .loss;
  };
  return its;
}

Batch TranslatorBatch(int number) {
  const at::Generator draws = Draws(number);
  const auto tokens = [&] {
    return at::randint(kVocabulary, {kSamples, kTokens}, draws, at::kLong);
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
  return Value(LayersOf(net,
                        {"embed", "transformer.encoder.layers.*",
                         "transformer.encoder.norm",
                         "transformer.decoder.layers.*",
                         "transformer.decoder.norm", "words"},
                        TranslatorCalls(), example));
}

Case OfTranslator() {
  Case its;
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

Batch RecurrentBatch(int number) {
  const at::Generator draws = Draws(number);
  return {at::randn({kSamples, kTokens, kWidth}, draws),
          at::randint(kClasses, {kSamples}, draws, at::kLong), kSamples};
}

Case OfRecurrent() {
  Case its;
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

LabJob Job(const Case& its) {
  LabJob job;
  job.specs = [layers = its.layers] { return layers().specs; };
  job.loss = its.loss(its.layers());
  job.change = [](MeshStrategyOptions& options) {
    options.reproducible = true;
    options.seed = kSeed;
  };
  job.batch = its.batch;
  job.sparing = true;
  job.steps = kSteps;
  job.rate = kRate;
  job.test = 100;
  return job;
}

std::map<std::string, Tensor> Copies(const nn::Module& module) {
  std::map<std::string, Tensor> copies;
  for (const auto& each : module.named_parameters()) {
    copies[each.key()] = each.value().detach().clone();
  }
  return copies;
}

// The module by itself, as a program of LibTorch alone trains it.
std::map<std::string, Tensor> TrainedByItself(const Case& its) {
  const auto module = Seeded(its.make);
  torch::optim::SGD optimizer(module->parameters(), kRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    its.own_loss(*module, its.batch(step)).backward();
    optimizer.step();
  }
  return Copies(*module);
}

std::vector<LabLayout> Layouts() {
  std::vector<LabLayout> layouts;
  const auto add = [&](const std::string& schedule, int replicas, int ranks,
                       int devices, int chunks = 1) {
    LabLayout layout = {absl::StrCat(replicas, "x", ranks, "x", devices, " ",
                                     schedule),
                        schedule, replicas, ranks, devices, chunks};
    layout.microbatches = 8;
    layouts.push_back(layout);
  };
  add("1f1b", 2, 1, 1);  // data parallel
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    add(schedule, 1, 3, 1);
    add(schedule, 1, 1, 2);
    add(schedule, 2, 2, 1);
  }
  add("interleaved_1f1b", 1, 2, 1, 2);
  add("zb_v", 1, 2, 1, 2);
  add("zb_h1", 1, 1, 3);
  layouts.back().name += " on simulated devices";
  layouts.back().device_pool = SimDevices(3);
  return layouts;
}

class OutsideModulesTest : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { SimDevices(3); }  // before any backward
};

TEST_P(OutsideModulesTest, EveryLayoutHasTheSameBits) {
  const Case& its = GetParam();
  LabLayout single = {"single"};
  single.microbatches = 8;
  const auto expected = TrainInLab(single, Job(its));
  ASSERT_TRUE(expected.ok()) << expected.status();
  int cells = 0;
  for (const LabLayout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    ExpectSameBits(TrainInLab(layout, Job(its)), expected);
    ++cells;
    std::printf("%s: %s\n", its.name.c_str(), layout.name.c_str());
  }
  EXPECT_EQ(cells, 13);
}

TEST_P(OutsideModulesTest, ItTrainsAsTheModuleByItself) {
  const Case& its = GetParam();
  LabLayout single = {"single"};
  single.microbatches = 8;
  const auto found = TrainInLab(single, Job(its));
  ASSERT_TRUE(found.ok()) << found.status();
  for (const auto& [name, values] : TrainedByItself(its)) {
    SCOPED_TRACE(name);
    ASSERT_EQ(found->model.count(name), 1u);
    EXPECT_TRUE(found->model.at(name).allclose(values, 1e-4, 1e-5));
    const auto before = Seeded(its.make)->named_parameters()[name];
    EXPECT_FALSE(found->model.at(name).equal(before));
  }
}

INSTANTIATE_TEST_SUITE_P(Modules, OutsideModulesTest,
                         testing::Values(OfDetector(), OfTranslator(),
                                         OfRecurrent()));

// Each rank's constructors draw others.
TEST(OutsideModulesValuesTest, ReplicasTakeThoseOfReplica0) {
  LabJob job = Job(OfRecurrent());
  job.specs = [] {
    const auto seed = static_cast<uint64_t>(ThisThreadsRank());
    return Value(LayersOf(Seeded(outside::Recurrent, seed),
                          TreeOf(RecurrentBatch(0).inputs)))
        .specs;
  };
  job.steps = 0;
  LabLayout layout = {"hybrid", "1f1b", 2, 2};
  layout.microbatches = 8;
  const auto found = TrainInLab(layout, job);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto net = [](uint64_t rank) {
    return Copies(*Seeded(outside::Recurrent, rank));
  };
  const auto first = net(0), second = net(1);  // its two stages
  EXPECT_TRUE(found->model.at("0.weight").equal(first.at("0.weight")));
  EXPECT_TRUE(found->model.at("6.weight").equal(second.at("6.weight")));
  ExpectSameBits(found->held[2], found->held[0]);
  ExpectSameBits(found->held[3], found->held[1]);
}

// Each rank's half of the batches, with a loop of its own.
absl::Status TrainDetectorInDdp(Communicator& world,
                                std::map<std::string, Tensor>* trained) {
  const auto net = Seeded([] { return std::make_shared<outside::Detector>(); });
  TANDEM_ASSIGN_OR_RETURN(const auto ddp,
                          MakeDistributedDataParallel(net, world));
  TANDEM_ASSIGN_OR_RETURN(const auto optimizer,
                          MakeOptimizer(SgdOptions{}, ddp->flat_buffers()));
  for (int step = 0; step < kSteps; ++step) {
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<Batch> parts,
        SplitBatch(DetectorBatch(step), EvenSizes(kSamples, world.size())));
    const Batch& mine = parts[static_cast<size_t>(world.rank())];
    ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(
        const outside::Predictions outputs,
        ddp->Forward(mine.inputs,
                     mine.further_inputs.at("input[1]").toTensor()));
    const Targets targets = {mine.targets,
                             mine.further_targets.at("target[1]").toTensor()};
    TANDEM_RETURN_IF_ERROR(ddp->Backward(DetectorLoss(outputs, targets).loss));
    optimizer->Step(kRate);
  }
  if (world.rank() == 0) *trained = Copies(*net);
  return absl::OkStatus();
}

// Whole, in the wrapper: dicts and all.
TEST(OutsideModuleInDdpTest, ItsForwardGivesADict) {
  std::map<std::string, Tensor> found;
  const absl::Status status = RunThreadRanks(2, [&](Communicator& world) {
    return TrainDetectorInDdp(world, &found);
  });
  ASSERT_TRUE(status.ok()) << status;
  for (const auto& [name, values] : TrainedByItself(OfDetector())) {
    EXPECT_TRUE(found.at(name).allclose(values, 1e-4, 1e-5)) << name;
  }
}

}  // namespace
}  // namespace tandem
