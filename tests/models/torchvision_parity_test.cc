// Our networks against torchvision's ResNets and a GPT-2 written out in Python:
// names, shapes, outputs and gradients. make_torchvision_parity.py wrote down
// what those give in double precision. In float32 the smaller networks are
// compared too; ResNet-50's rounding errors in training mode, torchvision's own
// included, are greater than any useful tolerance.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/model/layer_list.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/resnet.h"
#include "models/transformer/gpt.h"
#include "tests/models/formula_values.h"
#include "tests/models/rounding.h"

namespace tandem {
namespace {

using nlohmann::json;

// Sums of up to 4,608 products (512 channels, 3 x 3), of outputs about 1.
constexpr int kRoundings = 4608;

// What becomes of an error on its way through the layers behind it: of the
// networks that are compared in float32, and of all. Those are torchvision's
// ResNet-50's in training mode, by a wide margin.
constexpr double kGrowthInFloat = 4;
constexpr double kGrowth = 1e5;

// Tolerance of outputs and loss, and of the gradient's norm relative to its
// size: 9e-5 in float32, 4e-9 in double.
double Tolerance(at::ScalarType dtype) {
  return RoundingTolerance(dtype, kRoundings, 1) *
         (dtype == at::kFloat ? kGrowthInFloat : kGrowth);
}

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
  const auto values = expected.get<std::vector<double>>();
  ASSERT_EQ(actual.numel(), static_cast<int64_t>(values.size()));
  const at::Tensor errors = actual.detach().to(at::kDouble).flatten() -
                            at::tensor(values, at::kDouble);
  EXPECT_LE(errors.abs().max().item<double>(), Tolerance(actual.scalar_type()));
}

void ExpectLossAndGradients(const LayerList& layers, const at::Tensor& outputs,
                            const at::Tensor& targets, const json& expected) {
  const double tolerance = Tolerance(outputs.scalar_type());
  const LossResult result = CrossEntropy(outputs, targets);
  EXPECT_NEAR(result.score.loss(), expected.at("loss").get<double>(),
              tolerance);
  result.loss.backward();
  const double norm = expected.at("gradient_norm").get<double>();
  EXPECT_NEAR(GradientNorm(layers), norm, tolerance * norm);
}

using MakeResnet = LayerSpecs (*)(const ResnetOptions&);

void ExpectTorchvisionsNamesAndShapes(const std::string& name,
                                      MakeResnet make) {
  const json expected = Expected(name);
  const LayerList layers = MakeLayers(make(ResnetOptions()), 1);
  EXPECT_EQ(NamesAndShapes(NamedParameters(layers)), expected.at("parameters"));
  EXPECT_EQ(NamesAndShapes(NamedBuffers(layers)), expected.at("buffers"));
}

void ExpectTorchvisionsNumbers(const std::string& name, MakeResnet make,
                               at::ScalarType dtype) {
  const json expected = Expected(name);
  const LayerList layers = MakeLayers(make({3, 10}), 1);
  FillByFormula(layers, dtype);
  at::Tensor input = at::empty({4, 3, 64, 64});
  FillByFormula("input", input);
  input = input.to(dtype);

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

TEST(ResnetParityTest, StateHasTorchvisionsNamesAndShapesInItsOrder) {
  ExpectTorchvisionsNamesAndShapes("resnet18", Resnet18);
  ExpectTorchvisionsNamesAndShapes("resnet34", Resnet34);
  ExpectTorchvisionsNamesAndShapes("resnet50", Resnet50);
}

TEST(ResnetParityTest, Resnet18ComputesTorchvisionsNumbers) {
  ExpectTorchvisionsNumbers("resnet18", Resnet18, at::kFloat);
  ExpectTorchvisionsNumbers("resnet18", Resnet18, at::kDouble);
}

TEST(ResnetParityTest, Resnet34ComputesTorchvisionsNumbers) {
  ExpectTorchvisionsNumbers("resnet34", Resnet34, at::kDouble);
}

TEST(ResnetParityTest, Resnet50ComputesTorchvisionsNumbers) {
  ExpectTorchvisionsNumbers("resnet50", Resnet50, at::kDouble);
}

TEST(GptParityTest, StateHasGpt2sNamesAndShapesInItsOrder) {
  EXPECT_EQ(NamesAndShapes(NamedParameters(MakeLayers(GptTiny(), 1))),
            Expected("gpt_tiny").at("parameters"));
}

TEST(GptParityTest, ComputesGpt2sNumbers) {
  const json expected = Expected("gpt_tiny");
  const at::Tensor index = at::arange(2 * 128, at::kLong).view({2, 128});
  const at::Tensor tokens = (index * index * 3 + index * 7) % 256;
  const at::Tensor positions = at::tensor({0, 1, 2, 63, 127}, at::kLong);
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const LayerList layers = MakeLayers(GptTiny(), 1);
    FillByFormula(layers, dtype);
    const at::Tensor logits = Forward(layers, tokens);
    ExpectNear(logits.index_select(1, positions).narrow(2, 0, 16),
               expected.at("logits"));
    ExpectLossAndGradients(layers, logits, (tokens * 5 + 1) % 256, expected);
  }
}

}  // namespace
}  // namespace tandem
