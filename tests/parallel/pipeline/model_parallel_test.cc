#include "parallel/pipeline/model_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/fingerprint.h"
#include "core/model/layer_list.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/token_embedding.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/toy.h"
#include "models/transformer/gpt.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/optim/make_optimizer.h"

namespace tandem::model_parallel_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kSeed = 3;
constexpr int64_t kInputs = 6;
constexpr int64_t kHidden = 7;

Layer Linear(const std::string& name, int64_t in, int64_t out) {
  return LinearLayer(name, in, out).make(kSeed);
}

// A model and what it is trained on.
struct Job {
  LayerSpecs specs;
  std::function<Batch(int step)> batch;
  int steps = 3;
};

Batch RandomBatch(int step, const std::vector<int64_t>& shape,
                  int64_t classes) {
  auto generator = at::detail::createCPUGenerator(100 + step);
  return {at::randn(shape, generator),
          at::randint(classes, {shape[0]}, generator, at::kLong), shape[0]};
}

Job ToyJob() {
  return {ToyMpModel(), [](int step) { return RandomBatch(step, {7, 10}, 5); }};
}

Job MlpJob() {
  return {MlpSmall(17, 5), [](int step) {
            return RandomBatch(step, {11, 17}, 5);
          }};
}

Job ResnetJob() {
  return {Resnet18({3, 10}),
          [](int step) {
            return RandomBatch(step, {3, 3, 33, 31}, 10);
          },
          2};
}

Job GptJob() {
  return {GptTiny(), [](int step) {
            auto generator = at::detail::createCPUGenerator(100 + step);
            const at::Tensor tokens =
                at::randint(256, {3, 14}, generator, at::kLong);
            return Batch{tokens.narrow(1, 0, 13), tokens.narrow(1, 1, 13), 3};
          }};
}

// The default cuts of 1 to 4 parts.
std::vector<Cuts> ByParameters(const Job& job) {
  const auto sizes = ParameterCounts(MakeLayers(job.specs, kSeed));
  std::vector<Cuts> all;
  for (int64_t parts = 1; parts <= 4; ++parts) {
    all.push_back(*CutsByParameters(sizes, parts));
  }
  return all;
}

std::vector<Cuts> Uniform(const Job& job) {
  std::vector<Cuts> all;
  for (int64_t parts = 1; parts <= 4; ++parts) {
    all.push_back(*UniformCuts(static_cast<int64_t>(job.specs.size()), parts));
  }
  return all;
}

// What training comes to: every loss, every gradient, and at the end all
// weights and buffers, as text.
std::vector<std::string> Train(const Job& job, const LayerList& layers) {
  const NamedTensors parameters = NamedParameters(layers);
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  auto optimizer = MakeOptimizer(SgdOptions{0.9, 0, 0.01, false}, buffers);
  std::vector<std::string> came_to;
  for (int step = 0; step < job.steps; ++step) {
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    const Batch batch = job.batch(step);
    const at::Tensor outputs = Forward(layers, batch.inputs);
    const at::Tensor loss =
        CrossEntropy(outputs, batch.targets.to(outputs.device())).loss;
    loss.backward();
    NamedTensors gradients;
    for (const auto& [name, parameter] : parameters) {
      gradients.emplace_back(name, parameter.grad());
    }
    came_to.push_back(
        absl::StrCat(loss.item<double>(), " ", WeightsSha256(gradients)));
    (*optimizer)->Step(0.05);
  }
  came_to.push_back(WeightsSha256(parameters));
  came_to.push_back(WeightsSha256(NamedBuffers(layers)));
  return came_to;
}

class ModelParallelTest : public DeviceTypeTest {
 protected:
  // All of the model on the first device, with no cut code in it.
  std::vector<std::string> TrainUncut(const Job& job) {
    const LayerList layers = MakeLayers(job.specs, kSeed);
    for (const Layer& layer : layers) {
      if (layer.module != nullptr) layer.module->to(Devices(1)[0]);
    }
    Job moved = job;
    moved.batch = [&](int step) {
      Batch batch = job.batch(step);
      batch.inputs = batch.inputs.to(Devices(1)[0]);
      return batch;
    };
    return Train(moved, layers);
  }

  LayerList Cut(const Job& job, const Cuts& cuts) {
    auto layers = SpreadOverDevices(MakeLayers(job.specs, kSeed), cuts,
                                    Devices(static_cast<int>(cuts.size()) + 1));
    EXPECT_TRUE(layers.ok()) << layers.status();
    return *std::move(layers);
  }

  void ExpectSameAsUncut(const Job& job, const std::vector<Cuts>& choices) {
    const std::vector<std::string> uncut = TrainUncut(job);
    for (const Cuts& cuts : choices) {
      EXPECT_EQ(Train(job, Cut(job, cuts)), uncut)
          << "cut in front of layers " << absl::StrJoin(cuts, ", ");
    }
  }

  // The status of a forward of `layers`, cut in the middle.
  absl::Status ForwardStatus(LayerList layers) {
    const auto middle = static_cast<int64_t>(layers.size()) / 2;
    auto spread = SpreadOverDevices(std::move(layers), {middle}, Devices(2));
    if (!spread.ok()) return spread.status();
    return CatchTorch([&] { Forward(*spread, at::ones({2, kInputs})); });
  }

  // "layer NAME (part 2 of 2, on cuda:1)"
  std::string SecondPart(const std::string& name) {
    return absl::StrCat("in layer ", name, " (part 2 of 2, on ",
                        Devices(2)[1].str(), ")");
  }
};

TEST_P(ModelParallelTest, MlpHasTheBitsOfTheUncutModel) {
  ExpectSameAsUncut(MlpJob(), ByParameters(MlpJob()));
  ExpectSameAsUncut(MlpJob(), Uniform(MlpJob()));
}

TEST_P(ModelParallelTest, ResnetHasTheBitsOfTheUncutModel) {
  ExpectSameAsUncut(ResnetJob(), ByParameters(ResnetJob()));
}

TEST_P(ModelParallelTest, GptHasTheBitsOfTheUncutModel) {
  ExpectSameAsUncut(GptJob(), ByParameters(GptJob()));
  ExpectSameAsUncut(GptJob(), Uniform(GptJob()));
}

TEST_P(ModelParallelTest, EveryCutGivesTheSameBits) {
  ExpectSameAsUncut(ToyJob(), {{1}, {2}, {1, 2}});
  std::vector<Cuts> all;
  const auto layers = static_cast<int64_t>(MlpJob().specs.size());
  for (int64_t cut = 1; cut < layers; ++cut) all.push_back({cut});
  ExpectSameAsUncut(MlpJob(), all);
}

TEST_P(ModelParallelTest, NamesAndInitialValuesStayAndPartsLieOnTheirDevices) {
  const Job job = ToyJob();
  const LayerList uncut = MakeLayers(job.specs, kSeed);
  const LayerList cut = Cut(job, {kToyMpCut});
  EXPECT_EQ(cut[2].name, "net2");
  EXPECT_EQ(WeightsSha256(NamedParameters(cut)),
            WeightsSha256(NamedParameters(uncut)));
  EXPECT_TRUE(IsOn(NamedParameters(cut).front().second, Devices(2)[0]));
  EXPECT_TRUE(IsOn(NamedParameters(cut).back().second, Devices(2)[1]));
  const at::Tensor outputs = Forward(cut, at::ones({2, kToyInputs}));
  EXPECT_TRUE(IsOn(outputs, Devices(2)[1]));
  EXPECT_THAT(ParameterCounts(cut), ElementsAre(110, 0, 55));
}

TEST_P(ModelParallelTest, TheInputGetsItsGradientBack) {
  const LayerList cut = Cut(ToyJob(), {kToyMpCut});
  at::Tensor input = at::ones({2, kToyInputs}).requires_grad_();
  Forward(cut, input).sum().backward();
  ASSERT_TRUE(input.grad().defined());
  EXPECT_TRUE(input.grad().device().is_cpu());
}

TEST_P(ModelParallelTest, TokenNumbersCrossACut) {
  auto embedding = std::make_shared<torch::nn::EmbeddingImpl>(5, 3);
  const LayerList layers = {
      {"same", nullptr, [](const at::Tensor& x) { return x; }},
      {"wte", embedding,
       [embedding](const at::Tensor& x) { return embedding->forward(x); }}};
  const LayerList cut = *SpreadOverDevices(layers, {1}, Devices(2));
  Forward(cut, at::ones({4}, at::kLong)).sum().backward();
  EXPECT_EQ(embedding->weight.grad().sum().item<double>(), 4 * 3);
}

TEST_P(ModelParallelTest, AForgottenTensorIsNamedWithItsLayer) {
  // It lies on no device of the model.
  const Layer forgetful = {
      "mask", nullptr, [](const at::Tensor& x) {
        return x.add(at::ones({kHidden}, at::device(c10::kMeta)));
      }};
  EXPECT_THAT(ForwardStatus({Linear("fc1", kInputs, kHidden), forgetful}),
              Says("on the same device", SecondPart("mask")));
}

TEST_P(ModelParallelTest, ATensorThatStayedOnTheFirstDeviceIsNamed) {
  const c10::Device first = Devices(2)[0];
  if (first.is_cpu() || Devices(2)[1] == first) GTEST_SKIP() << "one device";
  const Layer forgetful = {
      "scale", nullptr, [first](const at::Tensor& x) {
        return x.mul(at::ones({kHidden}, at::device(first)));
      }};
  EXPECT_THAT(ForwardStatus({Linear("fc1", kInputs, kHidden), forgetful}),
              Says(first.str(), SecondPart("scale")));
}

TEST_P(ModelParallelTest, AnOutputElsewhereIsNamedWithItsLayer) {
  const Layer away = {"away", nullptr,
                      [](const at::Tensor& x) { return x.to(c10::kMeta); }};
  const absl::Status status =
      ForwardStatus({Linear("fc1", kInputs, kHidden), away});
  EXPECT_THAT(status,
              InvalidArgument("output lies on meta", SecondPart("away")));
}

TEST_P(ModelParallelTest, ErrorsKeepTheirKindAndNameTheLayer) {
  const auto status_of = [&](std::function<void()> fail) {
    return ForwardStatus({Linear("fc1", kInputs, kHidden),
                          {"bad", nullptr, [fail](const at::Tensor& x) {
                             fail();
                             return x;
                           }}});
  };
  const absl::Status memory =
      status_of([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "no room"); });
  EXPECT_THAT(memory, StatusIs(absl::StatusCode::kResourceExhausted, "no room",
                               SecondPart("bad")));
  const absl::Status other =
      status_of([] { throw std::runtime_error("what a user threw"); });
  EXPECT_EQ(other.message(),
            absl::StrCat("what a user threw (", SecondPart("bad"), ")"));
  EXPECT_THAT(ForwardStatus(
                  {Linear("fc1", kInputs, kHidden), Linear("fc2", 5, kHidden)}),
              Says("shapes", SecondPart("fc2")));
}

TEST_P(ModelParallelTest, WhatPartsShareIsAnErrorThatNamesBoth) {
  const Layer first = Linear("fc1", 4, 4);
  Layer second = Linear("fc2", 4, 4);
  second.module->register_parameter("tied",
                                    first.module->named_parameters()["weight"]);
  const absl::Status status =
      SpreadOverDevices({first, second}, {1}, Devices(2)).status();
  EXPECT_THAT(status, InvalidArgument("fc1.weight (part 1 of 2",
                                      "fc2.tied (part 2 of 2", "one tensor"));
  EXPECT_TRUE(NamedParameters({first})[0].second.device().is_cpu());
}

TEST_P(ModelParallelTest, WhatLayersOfOnePartShareStaysShared) {
  const Layer first = Linear("fc1", 4, 4);
  Layer second = Linear("fc2", 4, 4);
  second.module->register_parameter("tied",
                                    first.module->named_parameters()["weight"]);
  const LayerList cut =
      *SpreadOverDevices({Linear("fc0", 4, 4), first, second}, {1}, Devices(2));
  const at::Tensor tied = cut[2].module->named_parameters()["tied"];
  EXPECT_TRUE(tied.is_same(cut[1].module->named_parameters()["weight"]));
  EXPECT_TRUE(IsOn(tied, Devices(2)[1]));
  EXPECT_THAT(ParameterCounts(cut), ElementsAre(20, 20, 20));
}

// Layers that are not made yet are made one at a time.
TEST(ParameterCountsTest, NoMoreThanALayerIsThere) {
  const LayerSpec owner = LinearLayer("fc1", 4, 5, /*bias=*/false);
  LayerSpecs specs = {owner, ReluLayer("relu"), LinearLayer("fc2", 5, 4),
                      TiedLinearLayer("head", owner, "fc1.weight")};
  EXPECT_THAT(ParameterCounts(MakeLayers(specs, kSeed)),
              ElementsAre(20, 0, 24, 0));
  std::vector<std::weak_ptr<torch::nn::Module>> made;
  for (LayerSpec& spec : specs) {
    if (spec.make == nullptr) continue;
    spec.make = [&made, make = spec.make](uint64_t seed) {
      for (const auto& each : made) EXPECT_TRUE(each.expired());
      Layer layer = make(seed);
      made.push_back(layer.module);
      return layer;
    };
  }
  EXPECT_THAT(ParameterCounts(specs), ElementsAre(20, 0, 24, 0));
  EXPECT_GE(made.size(), 3u);
}

TEST_P(ModelParallelTest, CutsAndDevicesMustFit) {
  const auto error = [&](const LayerList& layers, const Cuts& cuts, int n) {
    const auto spread = SpreadOverDevices(layers, cuts, Devices(n));
    EXPECT_EQ(spread.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(spread.status().message());
  };
  const LayerList layers = MakeLayers(ToyMpModel(), kSeed);
  EXPECT_THAT(error(layers, {2}, 3),
              HasSubstr("1 cuts make 2 parts, but there are 3 devices"));
  EXPECT_THAT(error(layers, {3}, 2), HasSubstr("a part without a layer"));
  EXPECT_THAT(error({}, {}, 1), HasSubstr("the model has 0"));
}

TANDEM_ON_DEVICE_TYPES(ModelParallelTest);

}  // namespace
}  // namespace tandem::model_parallel_test
