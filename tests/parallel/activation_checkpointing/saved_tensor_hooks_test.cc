#include "parallel/activation_checkpointing/saved_tensor_hooks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <thread>
#include <vector>

#include "core/testing/device_types.h"

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

}  // namespace
}  // namespace tandem::saved_tensor_hooks_test
