// Our networks against torchvision's ResNets and a GPT-2 written out in Python:
// names, shapes, outputs and gradients. make_torchvision_parity.py wrote down
// what those give.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/layer_list.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/gpt.h"
#include "models/resnet.h"
#include "tests/models/formula_values.h"

namespace tandem {
namespace {

using nlohmann::json;

// "within 1e-5", and as much of the gradient relative to its size.
constexpr double kTolerance = 1e-5;

json Expected(const std::string& model) {
  std::ifstream file("tests/models/testdata/torchvision_parity.json");
  return json::parse(file).at(model);
}

json NamesAndShapes(const NamedTensors& tensors) {
  json list = json::array();
  for (const auto& item : tensors) {
    list.push_back({item.first, item.second.sizes().vec()});
  }
  return list;
}

double GradientNorm(const LayerList& layers) {
  double squares = 0;
  for (const auto& item : NamedParameters(layers)) {
    squares += item.second.grad().to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

void ExpectNear(const at::Tensor& actual, const json& expected) {
  const auto values = expected.get<std::vector<float>>();
  ASSERT_EQ(actual.numel(), static_cast<int64_t>(values.size()));
  const at::Tensor flat = actual.detach().contiguous();
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(flat.data_ptr<float>()[i] - values[i]);
    worst = error <= worst ? worst : error;  // a NaN stays
  }
  EXPECT_LE(worst, kTolerance);
}

void ExpectLossAndGradients(const LayerList& layers, const at::Tensor& outputs,
                            const at::Tensor& targets, const json& expected) {
  const LossResult result = CrossEntropy(outputs, targets);
  EXPECT_NEAR(result.score.loss(), expected.at("loss").get<double>(),
              kTolerance);
  result.loss.backward();
  const double norm = expected.at("gradient_norm").get<double>();
  EXPECT_NEAR(GradientNorm(layers), norm, kTolerance * norm);
}

struct ResnetCase {
  std::string name;
  LayerSpecs (*make)(const ResnetOptions&);
};

class ResnetParityTest : public testing::TestWithParam<ResnetCase> {};

TEST_P(ResnetParityTest, StateHasTorchvisionsNamesAndShapesInItsOrder) {
  const json expected = Expected(GetParam().name);
  const LayerList layers = MakeLayers(GetParam().make(ResnetOptions()), 1);
  EXPECT_EQ(NamesAndShapes(NamedParameters(layers)), expected.at("parameters"));
  EXPECT_EQ(NamesAndShapes(NamedBuffers(layers)), expected.at("buffers"));
}

TEST_P(ResnetParityTest, ComputesWhatTorchvisionComputes) {
  const json expected = Expected(GetParam().name);
  const LayerList layers = MakeLayers(GetParam().make({3, 10}), 1);
  FillByFormula(layers);
  const at::Tensor input = at::empty({4, 3, 64, 64});
  FillByFormula("input", input);

  SetTraining(layers, false);
  ExpectNear(Forward(layers, input), expected.at("eval"));
  SetTraining(layers, true);
  const at::Tensor trained = Forward(layers, input);
  ExpectNear(trained, expected.at("train"));
  ExpectLossAndGradients(layers, trained, at::arange(4, at::kLong), expected);
  // The running statistics took the training batch in.
  SetTraining(layers, false);
  ExpectNear(Forward(layers, input), expected.at("eval_after_train"));
}

INSTANTIATE_TEST_SUITE_P(All, ResnetParityTest,
                         testing::Values(ResnetCase{"resnet18", Resnet18},
                                         ResnetCase{"resnet34", Resnet34},
                                         ResnetCase{"resnet50", Resnet50}),
                         [](const auto& info) { return info.param.name; });

TEST(GptParityTest, StateHasGpt2sNamesAndShapesInItsOrder) {
  EXPECT_EQ(NamesAndShapes(NamedParameters(MakeLayers(GptTiny(), 1))),
            Expected("gpt_tiny").at("parameters"));
}

TEST(GptParityTest, ComputesWhatGpt2Computes) {
  const json expected = Expected("gpt_tiny");
  const LayerList layers = MakeLayers(GptTiny(), 1);
  FillByFormula(layers);
  const at::Tensor index = at::arange(2 * 128, at::kLong).view({2, 128});
  const at::Tensor tokens = (index * index * 3 + index * 7) % 256;
  const at::Tensor logits = Forward(layers, tokens);
  const at::Tensor positions = at::tensor({0, 1, 2, 63, 127}, at::kLong);
  ExpectNear(logits.index_select(1, positions).narrow(2, 0, 16),
             expected.at("logits"));
  ExpectLossAndGradients(layers, logits, (tokens * 5 + 1) % 256, expected);
}

}  // namespace
}  // namespace tandem
