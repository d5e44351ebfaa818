// What a profile says of models whose costs are known.

#include "parallel/partition/layer_profile.h"

#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "core/model/layer_list.h"
#include "core/precision/autocast.h"
#include "core/precision/low_precision_copy.h"
#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "models/layers/basic_layers.h"
#include "models/mlp.h"
#include "models/registry.h"

namespace tandem::layer_profile_test {
namespace {

using testing::ElementsAre;

constexpr int64_t kFloat = 4;

LayerSpec Plain(const std::string& name, LayerLinks links,
                std::function<at::Tensor(const at::Tensor&, Skips&)> forward) {
  LayerSpec spec;
  spec.name = name;
  spec.links = std::move(links);
  spec.make = [name, forward](uint64_t) {
    Layer layer;
    layer.name = name;
    layer.forward_with_skips = forward;
    return layer;
  };
  return spec;
}

std::vector<int64_t> Activations(const ModelProfile& profile) {
  std::vector<int64_t> bytes;
  for (const LayerProfile& each : profile.layers) {
    bytes.push_back(each.activation_bytes);
  }
  return bytes;
}

class LayerProfileTest : public DeviceTypeTest {
 protected:
  absl::StatusOr<ModelProfile> Profile(const LayerList& layers,
                                       const at::Tensor& input,
                                       ProfileOptions options = {}) {
    options.device = Devices(1).front();
    return ProfileLayers(layers, input, options);
  }
};

TEST_P(LayerProfileTest, CountsTheBytesOfAnMlp) {
  const LayerList layers = MakeLayers(Mlp({12, 3, 16, 5}), 1);
  const auto profile = Profile(layers, at::ones({7, 12}));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->input_bytes, 7 * 12 * kFloat);
  // flatten, fc1, relu1, fc2, relu2, fc3: what a linear layer makes nobody
  // needs, of ReLU's output it and the next layer keep the one copy.
  const int64_t kept = 7 * 16 * kFloat;
  EXPECT_THAT(Activations(*profile), ElementsAre(0, 0, kept, 0, kept, 0));
  const std::vector<LayerProfile>& layer_profiles = profile->layers;
  EXPECT_EQ(layer_profiles[1].name, "fc1");
  EXPECT_EQ(layer_profiles[1].parameter_bytes, (12 * 16 + 16) * kFloat);
  EXPECT_EQ(layer_profiles[1].state_bytes,
            3 * layer_profiles[1].parameter_bytes);
  EXPECT_EQ(layer_profiles[2].state_bytes, 0);
  EXPECT_EQ(layer_profiles[2].output_bytes, kept);
  EXPECT_EQ(layer_profiles[5].output_bytes, 7 * 5 * kFloat);
}

TEST_P(LayerProfileTest, LeavesTheModelAsItWas) {
  LayerList layers = MakeLayers(
      {Conv2dLayer("conv", {2, 4, 1}), BatchNorm2dLayer("bn", 4)}, 1);
  const NamedTensors parameters = NamedParameters(layers);
  at::Tensor first = parameters.front().second;
  first.mutable_grad() = at::ones_like(first);
  const auto profile = Profile(layers, at::ones({3, 2, 5, 5}));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_TRUE(first.grad().eq(1).all().item<bool>());
  for (size_t i = 1; i < parameters.size(); ++i) {
    EXPECT_FALSE(parameters[i].second.grad().defined());
  }
  for (const auto& [name, buffer] : NamedBuffers(layers)) {
    EXPECT_TRUE(buffer.device().is_cpu());
    const double fresh = name == "bn.running_var" ? 1 : 0;
    EXPECT_TRUE(buffer.eq(fresh).all().item<bool>()) << name;
  }
}

// Gradients of a whole model would be as large as the model.
TEST_P(LayerProfileTest, HasTheGradientsOfOneLayerAtATime) {
  LayerList layers = MakeLayers({LinearLayer("first", 4, 4)}, 1);
  const NamedTensors parameters = NamedParameters(layers);
  int looks = 0;
  Layer look;
  look.name = "look";
  look.forward = [&](const at::Tensor& x) {
    for (const auto& [name, parameter] : parameters) {
      EXPECT_FALSE(parameter.grad().defined()) << name;
    }
    ++looks;
    return x.mul(2);
  };
  layers.push_back(look);
  const auto profile = Profile(layers, at::ones({3, 4}));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_GT(looks, 1);
}

// In training a step's first microbatch alone finds none.
TEST_P(LayerProfileTest, AddsToGradientsWhereItIsAsked) {
  for (const bool adds : {false, true}) {
    const auto linear = std::make_shared<torch::nn::LinearImpl>(4, 3);
    int given = 0;
    const LayerList layers = {
        {"linear", linear, [&](const at::Tensor& x) {
           for (const at::Tensor& each : {linear->weight, linear->bias}) {
             if (each.grad().defined()) ++given;
           }
           return linear->forward(x);
         }}};
    ProfileOptions options;
    options.adds_gradients = adds;
    const auto profile = Profile(layers, at::ones({3, 4}), options);
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_EQ(given, adds ? 2 * (options.warmup + options.runs) : 0);
    EXPECT_FALSE(linear->weight.grad().defined());
    EXPECT_EQ(profile->layers[0].state_bytes, 3 * (4 * 3 + 3) * kFloat);
  }
}

TEST_P(LayerProfileTest, RunsInTheCallersAutocast) {
  const LayerList layers = MakeLayers(Mlp({12, 3, 16, 5}), 1);
  const AutocastGuard precision(Devices(1).front().type(), at::kBFloat16);
  const auto profile = Profile(layers, at::ones({7, 12}));
  ASSERT_TRUE(profile.ok()) << profile.status();
  // The same as above, but for what products make; parameters stay as they
  // were.
  EXPECT_EQ(profile->layers[2].output_bytes, 7 * 16 * kFloat / 2);
  EXPECT_EQ(profile->layers[1].parameter_bytes, (12 * 16 + 16) * kFloat);
}

// They belong to the parameters, and not to each microbatch that waits.
TEST_P(LayerProfileTest, CountsLowPrecisionCopiesOnce) {
  const LayerList layers = MakeLayers(Mlp({12, 3, 16, 5}), 1);
  const AutocastGuard precision(Devices(1).front().type(), at::kBFloat16);
  const auto profile = Profile(layers, at::ones({7, 12}));
  ASSERT_TRUE(profile.ok()) << profile.status();
  const LayerProfile& fc2 = profile->layers[3];
  EXPECT_EQ(fc2.state_bytes, 3 * fc2.parameter_bytes + fc2.parameter_bytes / 2);
  EXPECT_EQ(profile->layers[2].activation_bytes, 7 * 16 * kFloat / 2);
  EXPECT_EQ(fc2.activation_bytes, 0);
  for (const auto& each : NamedParameters(layers)) {
    EXPECT_FALSE(KeptLowPrecisionCopy(each.second).defined()) << each.first;
  }
}

TEST_P(LayerProfileTest, OrdersAndSplitsTimes) {
  const LayerSpecs specs = {LinearLayer("small", 512, 2),
                            LinearLayer("middle", 2, 512),
                            LinearLayer("big", 512, 1024)};
  const auto profile = Profile(MakeLayers(specs, 1), at::ones({512, 512}));
  ASSERT_TRUE(profile.ok()) << profile.status();
  for (const LayerProfile& each : profile->layers) {
    EXPECT_GT(each.forward, 0) << each.name;
    EXPECT_GT(each.backward_input, 0) << each.name;
    EXPECT_GT(each.backward_weight, 0) << each.name;
  }
  EXPECT_GT(profile->layers[2].forward, profile->layers[0].forward);
  EXPECT_GT(profile->layers[2].backward_weight,
            profile->layers[0].backward_weight);
}

// It is LibTorch's, which leaves nothing to a sink. Split, the gradients of its
// input and of its weight are products of the same size; in one part, what
// comes after that has nothing to do.
TEST_P(LayerProfileTest, SplitsAnyModulesBackwardWhereTheScheduleDoes) {
  const auto linear = std::make_shared<torch::nn::LinearImpl>(512, 1024);
  const LayerList layers = {{"linear", linear, [linear](const at::Tensor& x) {
                               return linear->forward(x);
                             }}};
  // Times are compared within a run: the machine may be busier in another.
  const auto profiled = [&](bool splits) {
    ProfileOptions options;
    options.splits_backward = splits;
    const auto profile =
        Profile(layers, at::ones({512, 512}).requires_grad_(), options);
    EXPECT_TRUE(profile.ok()) << profile.status();
    return profile.ok() ? profile->layers[0] : LayerProfile();
  };
  const LayerProfile split = profiled(true);
  EXPECT_GT(split.backward_weight, split.backward_input / 10);
  const LayerProfile whole = profiled(false);
  EXPECT_LT(whole.backward_weight, whole.backward_input / 4);
}

TEST_P(LayerProfileTest, CarriesSkips) {
  const LayerSpecs specs = {
      Plain("leave", {{"long"}, {}, {}},
            [](const at::Tensor& x, Skips& skips) {
              skips["long"] = x.mul(2);
              return x.add(1);
            }),
      ReluLayer("between"),
      Plain("take", {{}, {"long"}, {}}, [](const at::Tensor& x, Skips& skips) {
        const at::Tensor skip = skips.extract("long").mapped();
        return at::add(x, skip);
      })};
  const auto profile =
      Profile(MakeLayers(specs, 1), at::ones({5, 3}).requires_grad_());
  ASSERT_TRUE(profile.ok()) << profile.status();
  const int64_t one = 5 * 3 * kFloat;
  EXPECT_EQ(profile->layers[0].output_bytes, 2 * one);
  EXPECT_EQ(profile->layers[1].output_bytes, 2 * one);
  EXPECT_EQ(profile->layers[2].output_bytes, one);
  EXPECT_THAT(Activations(*profile), ElementsAre(0, one, 0));
}

// x -> x * the mask.
LayerSpec Masking(const std::string& name) {
  LayerLinks links;
  links.reads = {"mask"};
  return Plain(name, links, [](const at::Tensor& x, Skips& skips) {
    EXPECT_EQ(skips.at("mask").device().type(), x.device().type());
    EXPECT_FALSE(skips.at("mask").requires_grad());
    return x.mul(skips.at("mask"));
  });
}

// It crosses every cut before the last layer that reads it.
TEST_P(LayerProfileTest, CarriesFurtherInputsAsFarAsTheyAreRead) {
  const LayerList layers = MakeLayers(
      {ReluLayer("first"), Masking("a"), Masking("b"), ReluLayer("last")}, 1);
  ProfileOptions options;
  options.further_inputs["mask"] = at::ones({5, 1});
  const auto profile =
      Profile(layers, at::ones({5, 3}).requires_grad_(), options);
  ASSERT_TRUE(profile.ok()) << profile.status();
  const int64_t one = 5 * 3 * kFloat;
  const int64_t mask = 5 * kFloat;
  EXPECT_EQ(profile->input_bytes, one + mask);
  EXPECT_EQ(profile->layers[0].output_bytes, one + mask);
  EXPECT_EQ(profile->layers[1].output_bytes, one + mask);
  EXPECT_EQ(profile->layers[2].output_bytes, one);
  EXPECT_EQ(profile->layers[3].output_bytes, one);
  // The products' mask alone is kept, which is no layer's.
  EXPECT_THAT(Activations(*profile), ElementsAre(one, 0, 0, one));
}

TEST_P(LayerProfileTest, NamesAFurtherInputThatIsMissing) {
  const auto profile = Profile(MakeLayers({Masking("a")}, 1), at::ones({5, 3}));
  EXPECT_THAT(profile.status(),
              InvalidArgument("reads the further input 'mask'"));
}

TEST_P(LayerProfileTest, NamesTheLayerThatFails) {
  const LayerSpecs specs = {LinearLayer("good", 4, 8),
                            LinearLayer("bad", 9, 2)};
  const auto profile = Profile(MakeLayers(specs, 1), at::ones({3, 4}));
  EXPECT_THAT(profile.status(), InvalidArgument("layer bad"));
}

TEST_P(LayerProfileTest, AddsTheLoss) {
  ProfileOptions options;
  int calls = 0;
  options.loss = [&calls](const at::Tensor& outputs, const Skips&) {
    ++calls;
    return outputs.square().mean();
  };
  options.runs = 3;
  const auto profile =
      Profile(MakeLayers({ReluLayer("one")}, 1), at::ones({3}), options);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(calls, options.runs + options.warmup);
  EXPECT_EQ(profile->layers.size(), 1u);
}

TEST_P(LayerProfileTest, CarriesWhatTheLossTakes) {
  const LayerList layers =
      MakeLayers({Plain("head", {{"head"}, {}, {}},
                        [](const at::Tensor& x, Skips& skips) {
                          skips["head"] = x.narrow(1, 0, 2) * 2;
                          return x * 3;
                        }),
                  Plain("last", {{}, {}, {}, {"mask"}},
                        [](const at::Tensor& x, Skips& skips) {
                          return x * skips.at("mask");
                        })},
                 1);
  ProfileOptions options;
  options.further_inputs["mask"] = at::ones({7, 3});
  const auto refused = Profile(layers, at::ones({7, 3}), options);
  EXPECT_THAT(refused.status(),
              Says("'head' of layer 0 is taken by no layer after it, nor "
                   "by the loss"));
  options.loss_takes = {"head"};
  int calls = 0;
  options.loss = [&calls](const at::Tensor& output, const Skips& taken) {
    ++calls;
    return output.sum() + taken.at("head").sum();
  };
  const auto profile = Profile(layers, at::ones({7, 3}), options);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(calls, options.runs + options.warmup);
  EXPECT_EQ(profile->layers[0].output_bytes, 7 * (3 + 3 + 2) * kFloat);
  EXPECT_EQ(profile->layers[1].output_bytes, 7 * (3 + 2) * kFloat);
}

TEST_P(LayerProfileTest, KnowsTiedWeights) {
  const at::Tensor weight = at::ones({4, 4}).requires_grad_();
  LayerList layers;
  for (const char* name : {"embedding", "middle", "head"}) {
    Layer layer;
    layer.name = name;
    layer.forward = [weight](const at::Tensor& x) { return x.matmul(weight); };
    layer.module = std::make_shared<torch::nn::Module>();
    if (layer.name != "middle") {
      layer.module->register_parameter("weight", weight);
    }
    layers.push_back(layer);
  }
  // Each has the weight for itself on the device: the profile is for the CPU.
  const auto profile = ProfileLayers(layers, at::ones({2, 4}));
  ASSERT_TRUE(profile.ok()) << profile.status();
  const int64_t state = 3 * 16 * kFloat;
  EXPECT_THAT(profile->layers[0].shared_state,
              ElementsAre(testing::Pair(0, state)));
  EXPECT_THAT(profile->layers[1].shared_state, ElementsAre());
  EXPECT_THAT(profile->layers[2].shared_state,
              ElementsAre(testing::Pair(0, state)));
  EXPECT_EQ(profile->layers[2].state_bytes, state);
  EXPECT_FALSE(weight.grad().defined());
}

TEST_P(LayerProfileTest, RefusesNothing) {
  EXPECT_FALSE(Profile({}, at::ones({1})).ok());
  ProfileOptions options;
  options.runs = 0;
  EXPECT_FALSE(
      Profile(MakeLayers({ReluLayer("one")}, 1), at::ones({1}), options).ok());
}

TANDEM_ON_DEVICE_TYPES(LayerProfileTest);

// What lies on a device after a forward, by the device's books, is what the
// profile says, and the output.
TEST(LayerProfile, SaysWhatADeviceKeeps) {
  DeviceTypesToTest();
  if (!SimIsEnabled()) GTEST_SKIP() << "only simulated devices keep books";
  const c10::Device device = SimDevice(0);
  for (const char* name : {"mlp_small", "gpt_tiny", "resnet18"}) {
    SCOPED_TRACE(name);
    ModelOptions model;
    model.name = name;
    model.tokens = model.name == "gpt_tiny";
    model.input_shape = {3, 32, 32};
    if (model.tokens) model.input_shape = {128};
    model.classes = model.tokens ? 256 : 10;
    const LayerList layers = MakeLayers(*MakeModel(model), 1);
    std::vector<int64_t> shape = model.input_shape;
    shape.insert(shape.begin(), 2);
    const at::Tensor input =
        model.tokens ? at::ones(shape, at::kLong) : at::ones(shape);
    ProfileOptions options;
    options.warmup = 0;
    options.runs = 1;
    const auto profile = ProfileLayers(layers, input, options);
    ASSERT_TRUE(profile.ok()) << profile.status();
    for (const Layer& layer : layers) {
      if (layer.module != nullptr) layer.module->to(device);
    }
    const at::Tensor there = input.to(device);
    const int64_t before = sim::DeviceMemoryStatistics(0).now.total;
    const at::Tensor output = Forward(layers, there);
    auto kept = static_cast<int64_t>(output.nbytes());
    for (const LayerProfile& each : profile->layers) {
      kept += each.activation_bytes;
    }
    EXPECT_EQ(sim::DeviceMemoryStatistics(0).now.total - before, kept);
  }
}

}  // namespace
}  // namespace tandem::layer_profile_test
