#include "parallel/activation_checkpointing/saved_tensor_hooks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/Scalar.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/testing/device_types.h"
#include "parallel/activation_checkpointing/checkpoint.h"

namespace tandem::saved_tensor_hooks_test {
namespace {

// Keeps tensors on the CPU (torch.autograd.graph.save_on_cpu), and counts them.
class OnCpu final : public SavedTensorHooks {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> Make() override {
    return std::make_unique<Hooks>(this);
  }
  int packed = 0, unpacked = 0;

 private:
  class Hooks final : public torch::autograd::SavedVariableHooks {
   public:
    explicit Hooks(OnCpu* owner) : owner_(*owner) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      ++owner_.packed;
      device_ = tensor.device();
      kept_ = tensor.detach().cpu();
    }
    at::Tensor call_unpack_hook() override {
      ++owner_.unpacked;
      return kept_.to(device_);
    }

   private:
    OnCpu& owner_;
    at::Tensor kept_;
    c10::Device device_ = c10::kCPU;
  };
};

class SavedTensorHooksTest : public DeviceTypeTest {
 protected:
  static at::Tensor Leaf() {
    return at::ones({3}, TestDevice()).requires_grad_();
  }
};
TANDEM_ON_DEVICE_TYPES(SavedTensorHooksTest);

TEST_P(SavedTensorHooksTest, KeepTensorsElsewhere) {
  const at::Tensor x = Leaf();
  OnCpu hooks;
  at::Tensor y;
  {
    const SavedTensorHooksScope scope(&hooks);
    y = x.exp() * x;
  }
  EXPECT_EQ(hooks.packed, 3);
  y.sum().backward();
  EXPECT_EQ(hooks.unpacked, 3);
  EXPECT_TRUE(at::allclose(x.grad(), (x.exp() * x + x.exp()).detach()));
}

TEST_P(SavedTensorHooksTest, TheInnermostScopeCounts) {
  OnCpu outer, inner;
  const at::Tensor x = Leaf();
  const SavedTensorHooksScope scope(&outer);
  at::Tensor y = x.exp();
  {
    const SavedTensorHooksScope within(&inner);
    y = y.exp();
    const SavedTensorHooksScope none(nullptr);
    y = y.exp();
  }
  y = y.exp();
  EXPECT_EQ(outer.packed, 2);
  EXPECT_EQ(inner.packed, 1);
}

TEST_P(SavedTensorHooksTest, AreTheThreadsOwn) {
  OnCpu hooks;
  const SavedTensorHooksScope scope(&hooks);
  std::thread([] { Leaf().exp().sum().backward(); }).join();
  EXPECT_EQ(hooks.packed, 0);
}

// It may run on other threads, where it would be otherwise.
TEST_P(SavedTensorHooksTest, ABackwardWithinIsOutside) {
  OnCpu hooks;
  const at::Tensor x = Leaf();
  const SavedTensorHooksScope scope(&hooks);
  const at::Tensor y = x.exp().exp();
  EXPECT_EQ(hooks.packed, 2);
  torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true);
  EXPECT_EQ(hooks.packed, 2);
}

using Values =
    std::tuple<at::Tensor, std::vector<std::pair<int, at::Tensor>>,
               std::map<std::string, std::optional<at::Tensor>>,
               std::array<at::Tensor, 2>, std::vector<bool>, std::string>;

at::Tensor Number(double value) { return at::full({}, value); }

Values Example() {
  return {Number(1),
          {{7, Number(2)}, {8, at::Tensor()}},
          {{"b", Number(4)}, {"a", Number(3)}, {"c", std::nullopt}},
          {Number(5), Number(6)},
          {true},
          "text"};
}

TEST(TensorLeavesTest, AreTakenInOrderAndPutBack) {
  Values values = Example();
  const TakenTensors taken = TakeTensors(values);
  ASSERT_EQ(taken.tensors.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(taken.tensors[i].item<double>(), static_cast<double>(i + 1));
  }
  EXPECT_EQ(taken.is_taken,
            (std::vector<bool>{true, true, false, true, true, true, true}));
  EXPECT_FALSE(std::get<0>(values).defined());
  Values copy = values;
  PutTensors(taken.is_taken, taken.tensors, copy);
  EXPECT_TRUE(std::get<0>(copy).is_same(taken.tensors[0]));
  EXPECT_FALSE(std::get<1>(copy)[1].second.defined());
  EXPECT_TRUE(std::get<2>(copy)["a"]->is_same(taken.tensors[2]));
  EXPECT_FALSE(std::get<2>(copy)["c"].has_value());
  EXPECT_EQ(std::get<5>(copy), "text");
}

TEST(TensorLeavesTest, WhatHoldsNoneHasNone) {
  std::map<int, std::vector<double>> none = {{1, {2}}};
  EXPECT_TRUE(TakeTensors(none).tensors.empty());
  std::tuple<> nothing;
  EXPECT_TRUE(TakeTensors(nothing).is_taken.empty());
}

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
}  // namespace tandem::saved_tensor_hooks_test
