// 2,000 training steps on two simulated devices hold as much memory after each
// as after the first, on the devices' books and in the process.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iostream>
#include <vector>

#include "core/sim/memory/memory.h"
#include "core/sim/streams/streams.h"
#include "core/sim/testing.h"

namespace tandem {
namespace {

constexpr int kSteps = 2000;
constexpr int kWarmUp = 200;
// What the C library's heap may drift by; a leak of one tensor (128 B and its
// bookkeeping) a step would be beyond it.
constexpr int64_t kDriftBytes = int64_t{2} << 20;

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::array<int64_t, 2> InUse() {
  sim::SynchroniseAll();
  return {sim::DeviceMemoryStatistics(0).now.total,
          sim::DeviceMemoryStatistics(1).now.total};
}

// Two parts on two devices.
class Network {
 public:
  explicit Network(const std::vector<c10::Device>& devices)
      : devices_(devices),
        first_(torch::nn::Conv2d(1, 4, 3), torch::nn::BatchNorm2d(4),
               torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Dropout()),
        second_(torch::nn::Linear(4 * 16, 16), torch::nn::Tanh(),
                torch::nn::Linear(16, 3)) {
    first_->to(devices[0]);
    second_->to(devices[1]);
  }

  // The parameters of each device.
  std::vector<std::vector<at::Tensor>> parts() {
    return {first_->parameters(), second_->parameters()};
  }
  std::vector<at::Tensor> parameters() {
    std::vector<at::Tensor> all = first_->parameters();
    for (const at::Tensor& each : second_->parameters()) all.push_back(each);
    return all;
  }

  at::Tensor Loss(const at::Tensor& x, const at::Tensor& targets) {
    const at::Tensor hidden = first_->forward(x.to(devices_[0]));
    return at::cross_entropy_loss(second_->forward(hidden.to(devices_[1])),
                                  targets.to(devices_[1]));
  }

 private:
  const std::vector<c10::Device> devices_;
  torch::nn::Sequential first_;
  torch::nn::Sequential second_;
};

void Step(Network& network, torch::optim::AdamW& optimizer, int step) {
  // Other numbers in each step, as schedules have.
  for (auto& group : optimizer.param_groups()) {
    static_cast<torch::optim::AdamWOptions&>(group.options())
        .lr(1e-3 / (1 + 0.001 * step));
  }
  optimizer.zero_grad();
  const at::Tensor loss =
      network.Loss(at::randn({8, 1, 6, 6}), at::arange(8) % 3);
  loss.backward();
  for (const auto& part : network.parts()) {
    torch::nn::utils::clip_grad_norm_(part, 1 + 0.01 * step);
  }
  optimizer.step();
}

TEST(LeakTest, StepsHoldNothingBack) {
  const std::vector<c10::Device> devices = SimDevices(2);
  ASSERT_EQ(InUse(), (std::array<int64_t, 2>{0, 0}));
  int64_t resident = 0;
  {
    Network network(devices);
    torch::optim::AdamW optimizer(network.parameters());
    Step(network, optimizer, 0);
    const std::array<int64_t, 2> in_use = InUse();
    EXPECT_GT(in_use[0], 0);
    EXPECT_GT(in_use[1], 0);
    for (int step = 1; step < kSteps; ++step) {
      Step(network, optimizer, step);
      ASSERT_EQ(InUse(), in_use) << "step " << step;
      if (step == kWarmUp) resident = ResidentBytes();
    }
    const int64_t drift = ResidentBytes() - resident;
    std::cout << "in use " << in_use[0] << " B and " << in_use[1]
              << " B after each of " << kSteps << " steps; resident "
              << resident / 1024 << " KiB after " << kWarmUp << ", " << drift
              << " B more at the end\n";
    EXPECT_LE(drift, kDriftBytes);
  }
  EXPECT_EQ(InUse(), (std::array<int64_t, 2>{0, 0}));
  for (const int device : {0, 1}) {
    for (const int64_t bytes :
         sim::DeviceMemoryStatistics(device).now.by_category) {
      EXPECT_EQ(bytes, 0);
    }
  }
}

}  // namespace
}  // namespace tandem
