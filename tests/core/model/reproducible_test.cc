#include "core/model/reproducible.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/model/layer_list.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/layers/basic_layers.h"
#include "models/layers/dropout.h"

namespace tandem::reproducible_test {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Layer LayerOf(std::shared_ptr<nn::Module> module) {
  return {"layer", std::move(module), [](const at::Tensor& x) { return x; }};
}

std::string Refusal(std::shared_ptr<nn::Module> module) {
  const absl::Status status = CheckReproducible({LayerOf(std::move(module))});
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

std::vector<std::shared_ptr<nn::Module>> RandomModules() {
  return {
      std::make_shared<nn::DropoutImpl>(0.1),
      std::make_shared<nn::Dropout2dImpl>(0.1),
      std::make_shared<nn::Dropout3dImpl>(0.1),
      std::make_shared<nn::AlphaDropoutImpl>(0.1),
      std::make_shared<nn::FeatureAlphaDropoutImpl>(0.1),
      std::make_shared<nn::RReLUImpl>(),
      std::make_shared<nn::FractionalMaxPool2dImpl>(
          nn::FractionalMaxPool2dOptions(2).output_size(1)),
      std::make_shared<nn::FractionalMaxPool3dImpl>(
          nn::FractionalMaxPool3dOptions(2).output_size(1)),
      std::make_shared<nn::RNNImpl>(
          nn::RNNOptions(2, 2).num_layers(2).dropout(0.1)),
      std::make_shared<nn::LSTMImpl>(
          nn::LSTMOptions(2, 2).num_layers(2).dropout(0.1)),
      std::make_shared<nn::GRUImpl>(
          nn::GRUOptions(2, 2).num_layers(2).dropout(0.1)),
      std::make_shared<nn::MultiheadAttentionImpl>(
          nn::MultiheadAttentionOptions(2, 1).dropout(0.1)),
  };
}

TEST(CheckReproducible, RefusesWhatDrawsFromTheGeneratorByName) {
  for (const auto& module : RandomModules()) {
    EXPECT_THAT(Refusal(module),
                AllOf(HasSubstr("layer (" + module->name() + ")"),
                      HasSubstr("draws random numbers")));
  }
}

std::vector<std::shared_ptr<nn::Module>> TrackingModules() {
  return {
      std::make_shared<nn::BatchNorm1dImpl>(2),
      std::make_shared<nn::BatchNorm2dImpl>(2),
      std::make_shared<nn::BatchNorm3dImpl>(2),
      std::make_shared<nn::InstanceNorm1dImpl>(
          nn::InstanceNorm1dOptions(2).track_running_stats(true)),
      std::make_shared<nn::InstanceNorm2dImpl>(
          nn::InstanceNorm2dOptions(2).track_running_stats(true)),
      std::make_shared<nn::InstanceNorm3dImpl>(
          nn::InstanceNorm3dOptions(2).track_running_stats(true)),
  };
}

TEST(CheckReproducible, RefusesRunningStatisticsThatAreNotRecorded) {
  for (const auto& module : TrackingModules()) {
    EXPECT_THAT(Refusal(module),
                AllOf(HasSubstr("layer (" + module->name() + ")"),
                      HasSubstr("running statistics")));
  }
}

TEST(CheckReproducible, AcceptsTheSameKindsWhereNothingIsDrawnOrTracked) {
  const std::vector<std::shared_ptr<nn::Module>> modules = {
      std::make_shared<nn::DropoutImpl>(0),
      std::make_shared<nn::LSTMImpl>(nn::LSTMOptions(2, 2)),
      std::make_shared<nn::MultiheadAttentionImpl>(2, 1),
      std::make_shared<nn::BatchNorm2dImpl>(
          nn::BatchNorm2dOptions(2).track_running_stats(false)),
      std::make_shared<nn::InstanceNorm2dImpl>(2),
      std::make_shared<nn::LinearImpl>(2, 2),
  };
  for (const auto& module : modules) EXPECT_EQ(Refusal(module), "");
  EXPECT_TRUE(CheckReproducible({}).ok());
  Layer bare = LayerOf(nullptr);
  EXPECT_TRUE(CheckReproducible({bare}).ok());
}

TEST(CheckReproducible, AcceptsOurOwn) {
  const LayerList layers =
      MakeLayers({BatchNorm2dLayer("bn", 3), DropoutLayer("dropout", 0.5)}, 1);
  EXPECT_TRUE(CheckReproducible(layers).ok()) << CheckReproducible(layers);
}

TEST(CheckReproducible, FindsAndNamesAllThatAreInside) {
  const auto inner = std::make_shared<nn::SequentialImpl>(
      nn::Linear(2, 2), nn::Dropout(0.5), nn::BatchNorm1d(2));
  Layer fine = LayerOf(std::make_shared<nn::LinearImpl>(2, 2));
  fine.name = "fine";
  const absl::Status status = CheckReproducible({fine, LayerOf(inner)});
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("layer.1 (torch::nn::DropoutImpl)"),
                    HasSubstr("layer.2 (torch::nn::BatchNorm1dImpl)"),
                    Not(HasSubstr("fine")), Not(HasSubstr("layer.0"))));
}

TEST(CheckRecomputable, RefusesWhatDrawsInsideOfCudnnByName) {
  const c10::Device cuda(c10::kCUDA, 1);
  const Layer drops = LayerOf(
      std::make_shared<nn::LSTMImpl>(nn::LSTMOptions(2, 2).dropout(0.5)));
  EXPECT_THAT(
      std::string(CheckRecomputable({drops}, cuda).message()),
      AllOf(HasSubstr("layer (torch::nn::LSTMImpl)"), HasSubstr("cuda:1")));
  EXPECT_TRUE(CheckRecomputable({drops}, c10::kCPU).ok());
  for (const auto& module : std::vector<std::shared_ptr<nn::Module>>{
           std::make_shared<nn::GRUImpl>(2, 2),
           std::make_shared<nn::DropoutImpl>(0.5)}) {
    EXPECT_TRUE(CheckRecomputable({LayerOf(module)}, cuda).ok());
  }
}

}  // namespace
}  // namespace tandem::reproducible_test
