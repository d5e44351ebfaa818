#include "models/layers/initialize.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/adaptive.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "gtest/gtest.h"
#include "models/layers/basic_layers.h"
#include "models/resnet.h"

namespace tandem::initialize_test {
namespace {

constexpr uint64_t kSeed = 3;

using ByName = std::map<std::string, at::Tensor>;

ByName Values(const LayerSpecs& specs) {
  const NamedTensors tensors = NamedParameters(MakeLayers(specs, kSeed));
  return ByName(tensors.begin(), tensors.end());
}

TEST(InitializeTest, ValuesDependOnNothingButSeedAndName) {
  const LayerSpecs specs = Resnet18({3, 10});
  const ByName together = Values(specs);
  at::randn({5});  // moves the default generator
  const ByName backwards = Values(LayerSpecs(specs.rbegin(), specs.rend()));
  ByName alone;
  for (const LayerSpec& spec : specs) alone.merge(Values({spec}));
  ASSERT_EQ(backwards.size(), together.size());
  ASSERT_EQ(alone.size(), together.size());
  for (const auto& item : together) {
    EXPECT_TRUE(backwards.at(item.first).equal(item.second)) << item.first;
    EXPECT_TRUE(alone.at(item.first).equal(item.second)) << item.first;
  }
}

TEST(InitializeTest, EachParameterIsDrawnFromItsOwnGenerator) {
  const ByName values = Values({LinearLayer("head.fc", 9, 7)});
  const at::Tensor expected = at::empty({7, 9}).uniform_(
      -1.0 / 3, 1.0 / 3, GeneratorFor(kSeed, "head.fc.weight"));
  EXPECT_TRUE(values.at("head.fc.weight").equal(expected));
}

TEST(InitializeTest, SameShapesUnderOtherNamesDiffer) {
  const ByName values =
      Values({LinearLayer("a", 9, 7), LinearLayer("b", 9, 7)});
  EXPECT_FALSE(values.at("a.weight").equal(values.at("b.weight")));
  EXPECT_FALSE(values.at("a.bias").equal(values.at("b.bias")));
}

TEST(InitializeTest, ParametersStayLeavesThatRequireGradients) {
  for (const auto& item : Values({LinearLayer("a", 3, 2)})) {
    EXPECT_TRUE(item.second.is_leaf() && item.second.requires_grad());
  }
}

// U(-bound, bound): fills the interval, never leaves it, mean 0 and standard
// deviation bound / sqrt(3).
void ExpectUniform(const at::Tensor& values, double bound) {
  const double rare = 5 / std::sqrt(values.numel());
  EXPECT_LE(values.abs().max().item<double>(), bound * (1 + 1e-6));
  EXPECT_NEAR(values.mean().item<double>() / bound, 0, rare);
  EXPECT_NEAR(values.std().item<double>() / (bound / std::sqrt(3)), 1, rare);
}

TEST(PytorchDefaultTest, LinearIsUniformWithinOneOverRootFanIn) {
  const ByName values = Values({LinearLayer("fc", 307, 1201)});
  ExpectUniform(values.at("fc.weight"), 1 / std::sqrt(307));
  ExpectUniform(values.at("fc.bias"), 1 / std::sqrt(307));
}

TEST(PytorchDefaultTest, ALayerMayHaveNoOutputs) {
  const ByName values = Values({LinearLayer("fc", 4, 0)});
  EXPECT_EQ(values.at("fc.weight").sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(values.at("fc.bias").numel(), 0);
}

TEST(PytorchDefaultTest, ConvolutionsFanInCountsTheKernel) {
  Conv2dShape shape;
  shape.in_channels = 13;
  shape.out_channels = 509;
  shape.kernel_size = 3;
  const ByName values = Values({Conv2dLayer("conv", shape)});
  ExpectUniform(values.at("conv.weight"), 1 / std::sqrt(13 * 9));
  ExpectUniform(values.at("conv.bias"), 1 / std::sqrt(13 * 9));
}

TEST(PytorchDefaultTest, NormalizationsAreOneAndZero) {
  const ByName values =
      Values({BatchNorm2dLayer("bn", 5), LayerNormLayer("ln", 5)});
  for (const char* name : {"bn", "ln"}) {
    const std::string layer = name;
    EXPECT_TRUE(values.at(layer + ".weight").eq(1).all().item<bool>());
    EXPECT_TRUE(values.at(layer + ".bias").eq(0).all().item<bool>());
  }
}

TEST(PytorchDefaultTest, EmbeddingIsStandardNormal) {
  torch::nn::EmbeddingImpl module(311, 97);
  Initialize(module, "wte", kSeed);
  EXPECT_NEAR(module.weight.mean().item<double>(), 0, 0.03);
  EXPECT_NEAR(module.weight.std().item<double>(), 1, 0.03);
  EXPECT_GT(module.weight.abs().max().item<double>(), 3);
}

class Unknown : public torch::nn::Module {
 public:
  Unknown() : Module("Unknown") { register_parameter("gain", at::empty({3})); }
};

TEST(PytorchDefaultTest, AModuleWithoutARuleIsNamed) {
  Unknown module;
  try {
    Initialize(module, "head", kSeed);
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_EQ(std::string(error.what_without_backtrace()),
              "no default initial values for head.gain of module Unknown: give "
              "its layer a rule for it (models/layers/initialize.h)");
  }
}

namespace nn = torch::nn;

using Modules = std::map<std::string, std::shared_ptr<nn::Module>>;

// All of torch::nn's that have parameters, large enough for statistics.
Modules ModulesWithParameters() {
  const auto encoder = nn::TransformerEncoderLayerOptions(64, 4);
  const auto rnn = nn::RNNOptions(48, 100);
  return {
      {"linear", std::make_shared<nn::LinearImpl>(300, 200)},
      {"bilinear", std::make_shared<nn::BilinearImpl>(70, 30, 40)},
      {"conv1d", nn::Conv1d(nn::Conv1dOptions(40, 80, 3)).ptr()},
      {"conv3d", nn::Conv3d(nn::Conv3dOptions(10, 80, 3)).ptr()},
      {"grouped", nn::Conv2d(nn::Conv2dOptions(60, 80, 3).groups(4)).ptr()},
      {"transposed1d",
       nn::ConvTranspose1d(nn::ConvTranspose1dOptions(40, 120, 3)).ptr()},
      {"transposed2d",
       nn::ConvTranspose2d(nn::ConvTranspose2dOptions(40, 90, 3)).ptr()},
      {"transposed3d",
       nn::ConvTranspose3d(nn::ConvTranspose3dOptions(30, 20, 3)).ptr()},
      {"batch_norm", std::make_shared<nn::BatchNorm1dImpl>(7)},
      {"instance_norm",
       nn::InstanceNorm2d(nn::InstanceNorm2dOptions(7).affine(true)).ptr()},
      {"group_norm", nn::GroupNorm(nn::GroupNormOptions(2, 8)).ptr()},
      {"layer_norm", nn::LayerNorm(nn::LayerNormOptions({7})).ptr()},
      {"embedding",
       nn::Embedding(nn::EmbeddingOptions(500, 40).padding_idx(3)).ptr()},
      {"embedding_bag", std::make_shared<nn::EmbeddingBagImpl>(500, 40)},
      {"prelu", nn::PReLU(nn::PReLUOptions().num_parameters(3)).ptr()},
      {"rnn", nn::RNN(nn::RNNOptions(rnn).num_layers(2)).ptr()},
      {"lstm",
       nn::LSTM(nn::LSTMOptions(48, 100).bidirectional(true).proj_size(20))
           .ptr()},
      {"gru", std::make_shared<nn::GRUImpl>(48, 100)},
      {"rnn_cell", std::make_shared<nn::RNNCellImpl>(48, 100)},
      {"lstm_cell", std::make_shared<nn::LSTMCellImpl>(48, 100)},
      {"gru_cell", std::make_shared<nn::GRUCellImpl>(48, 100)},
      {"attention", nn::MultiheadAttention(
                        nn::MultiheadAttentionOptions(64, 4).add_bias_kv(true))
                        .ptr()},
      {"attention_of_others",
       nn::MultiheadAttention(
           nn::MultiheadAttentionOptions(64, 4).kdim(40).vdim(30))
           .ptr()},
      {"encoder_layer",
       std::make_shared<nn::TransformerEncoderLayerImpl>(encoder)},
      {"encoder",
       nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder, 2)).ptr()},
      {"decoder_layer",
       nn::TransformerDecoderLayer(nn::TransformerDecoderLayerOptions(64, 4))
           .ptr()},
      {"transformer", nn::Transformer(nn::TransformerOptions(64, 4)
                                          .num_encoder_layers(1)
                                          .num_decoder_layers(1))
                          .ptr()},
      {"adaptive",
       nn::AdaptiveLogSoftmaxWithLoss(
           nn::AdaptiveLogSoftmaxWithLossOptions(80, 300, {50, 150}))
           .ptr()},
  };
}

// Same mean and deviation within five deviations of a sample's, and as great at
// most: U(-b, b) and N(0, s) are told apart, and so is one bound from another.
void ExpectSameDistribution(const at::Tensor& found, const at::Tensor& like) {
  const auto number = [](const at::Tensor& tensor) {
    return tensor.item<double>();
  };
  const double deviation = number(like.std(/*unbiased=*/false));
  if (deviation == 0) {
    EXPECT_TRUE(found.equal(like));
    return;
  }
  const double rare = 5 / std::sqrt(like.numel());
  EXPECT_NEAR(number(found.mean()) / deviation, number(like.mean()) / deviation,
              2 * rare);
  EXPECT_NEAR(number(found.std(false)) / deviation, 1, 2 * rare);
  // The greatest of a few normal numbers says little.
  EXPECT_NEAR(number(found.abs().max()) / number(like.abs().max()), 1,
              like.numel() < 1000 ? 0.7 : 0.2);
  // What is constant within a row (padding) stays so.
  EXPECT_EQ(number(found.eq(0).sum()), number(like.eq(0).sum()));
}

TEST(PytorchDefaultTest, AllModulesGetWhatLibTorchGivesThem) {
  torch::manual_seed(5);
  const Modules theirs = ModulesWithParameters();
  const Modules ours = ModulesWithParameters();
  for (const auto& [name, module] : ours) {
    {
      const torch::NoGradGuard no_grad;
      for (at::Tensor each : module->parameters()) each.fill_(1e6);
    }
    Initialize(*module, name, kSeed);
    const auto expected = theirs.at(name)->named_parameters();
    for (const auto& item : module->named_parameters()) {
      SCOPED_TRACE(name + "." + item.key());
      ExpectSameDistribution(item.value().detach(),
                             expected[item.key()].detach());
    }
  }
}

TEST(InitializeTest, ARuleSeesFullNamesThroughTheTree) {
  torch::nn::Module root;
  const auto branch =
      root.register_module("1", std::make_shared<torch::nn::Module>());
  branch->register_module("fc", std::make_shared<torch::nn::LinearImpl>(2, 2));
  std::string names;
  Initialize(root, "layer", kSeed, [&](const InitialParameter& parameter) {
    names += parameter.name + " ";
  });
  EXPECT_EQ(names, "layer.1.fc.weight layer.1.fc.bias ");
}

}  // namespace
}  // namespace tandem::initialize_test
