#include "parallel/activation_checkpointing/bound_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <c10/core/Scalar.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem::bound_function_test {
namespace {

at::Tensor Number(double value) { return at::full({}, value); }

TEST(BoundFunctionTest, IsCalledWithOtherTensorsEachTime) {
  const auto difference = [](const std::pair<at::Tensor, at::Tensor>& both,
                             double factor, const at::Tensor& none) {
    EXPECT_FALSE(none.defined());
    return (both.first - both.second) * factor;
  };
  using Function = decltype(difference);
  BoundFunction<Function, std::pair<at::Tensor, at::Tensor>, double, at::Tensor>
      bound = {std::make_shared<Function>(difference),
               {{Number(5), Number(2)}, 10, at::Tensor()},
               {}};
  TakenTensors taken = TakeTensors(bound.arguments);
  bound.is_taken = taken.is_taken;
  EXPECT_EQ(bound(taken.tensors).item().toDouble(), 30);
  EXPECT_EQ(bound({Number(1), Number(4)}).item().toDouble(), -30);
  EXPECT_EQ(bound(taken.tensors).item().toDouble(), 30);
}

TEST(BoundFunctionTest, ModulesGoForward) {
  struct Doubling : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x * 2; }
  };
  const auto module = std::make_shared<Doubling>();
  const at::Tensor three = Number(3);
  EXPECT_EQ(CallOrForward(module, three).item().toDouble(), 6);
  torch::nn::Sequential twice(*module, *module);
  EXPECT_EQ(CallOrForward(twice, three).item().toDouble(), 12);
  const auto word = [](const std::string& text) { return text + "!"; };
  const std::string text = "text";
  EXPECT_EQ(CallOrForward(word, text), "text!");
  EXPECT_TRUE(IsModule<std::shared_ptr<Doubling>>::value);
  EXPECT_TRUE(IsModule<torch::nn::Linear>::value);
  EXPECT_FALSE(IsModule<decltype(word)>::value);
}

}  // namespace
}  // namespace tandem::bound_function_test
