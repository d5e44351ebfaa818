// Memory really falls: bytes of a simulated device, counted.

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "core/sim/sim.h"
#include "parallel/activation_checkpointing/checkpoint.h"

namespace tandem {
namespace {

constexpr int kUnits = 12;
constexpr int64_t kBytes = 1024 * sizeof(float);  // of each activation

// exp keeps what it makes; sin before it, its input; sin behind it, what exp
// has made: two tensors a unit, of which one is made in it and not its output.
at::Tensor Unit(const at::Tensor& x) { return x.sin().exp().sin(); }

struct Use {
  int64_t kept = 0;  // behind forward, beside the input
  int64_t peak = 0;  // in backward, the same way
};

class CheckpointMemoryTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(EnableSim().ok()); }

  static int64_t Now() { return sim::DeviceMemoryStatistics(0).now.total; }

  // In use, when the engine's thread has put away the backward that has ended.
  static int64_t WhenSettled(int64_t expected) {
    for (int i = 0; i < 1000 && Now() != expected; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return Now();
  }

  // Units in groups of so many, each checkpointed; 0: none is.
  static Use Train(int every, bool use_reentrant, bool retain_graph = false) {
    const at::Tensor x = at::ones({1024}, SimDevice(0)).requires_grad_();
    CheckpointOptions options;
    options.use_reentrant = use_reentrant;
    const int64_t before = Now();
    Use use;
    {
      at::Tensor y = x;
      const auto units = [](const at::Tensor& in, int count) {
        at::Tensor out = in;
        for (int i = 0; i < count; ++i) out = Unit(out);
        return out;
      };
      for (int i = 0; i < kUnits; i += std::max(every, 1)) {
        y = every == 0 ? Unit(y) : Checkpoint(options, units, y, every);
      }
      use.kept = Now() - before;
      sim::ResetPeak(0);
      const at::Tensor loss = y.sum();
      y.reset();
      loss.backward({}, retain_graph);
      use.peak = sim::DeviceMemoryStatistics(0).peak.total - before;
    }
    return use;
  }
};

TEST_F(CheckpointMemoryTest, OfAGroupItsInputAloneIsKept) {
  EXPECT_EQ(Train(0, false).kept, 2 * kUnits * kBytes);
  for (const bool use_reentrant : {false, true}) {
    for (const int every : {1, 2, 3, 4, 6, 12}) {
      EXPECT_EQ(Train(every, use_reentrant).kept, kUnits / every * kBytes)
          << every;
    }
  }
}

// One group's activations come back at a time; beside them are a few gradients.
TEST_F(CheckpointMemoryTest, InBackwardOneGroupIsThereAtATime) {
  const int64_t plain = Train(0, false).peak;
  for (const bool use_reentrant : {false, true}) {
    for (const int every : {1, 2, 3, 4, 6}) {
      const int64_t peak = Train(every, use_reentrant).peak;
      EXPECT_LT(peak, plain) << every;
      EXPECT_LE(peak, (kUnits / every + 2 * every + 4) * kBytes) << every;
    }
  }
}

TEST_F(CheckpointMemoryTest, NothingIsLeft) {
  const int64_t before = Now();
  for (const bool use_reentrant : {false, true}) {
    for (const bool retain_graph : {false, true}) {
      Train(3, use_reentrant, retain_graph);
      EXPECT_EQ(WhenSettled(before), before);
    }
  }
}

// What a kept graph was computed again for goes with the backward.
TEST_F(CheckpointMemoryTest, AKeptGraphKeepsNoMoreThanBefore) {
  const at::Tensor x = at::ones({1024}, SimDevice(0)).requires_grad_();
  const at::Tensor y = Checkpoint(
      [](const at::Tensor& in) { return Unit(Unit(Unit(in))).sum(); }, x);
  const int64_t before = Now();
  for (int i = 0; i < 3; ++i) {
    torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true);
    EXPECT_EQ(WhenSettled(before), before);
  }
}

}  // namespace
}  // namespace tandem
