#include "core/random/default_generator.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/rrelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/testing/device_types.h"

namespace tandem::default_generator_test {
namespace {

using Draw = std::function<at::Tensor()>;

class DefaultGeneratorTest : public DeviceTypeTest {};
TANDEM_ON_DEVICE_TYPES(DefaultGeneratorTest);

// A layer's noise may come from there, whatever device it computes on.
c10::TensorOptions OnCpu() { return c10::TensorOptions(c10::kCPU); }

// Two layers of an LSTM, with dropout between them.
Draw Recurrent() {
  return [] {
    const at::Tensor x = at::ones({3, 5, 2}, TestDevice());
    const at::Tensor state = at::zeros({2, 5, 2}, TestDevice());
    const at::Tensor weights = at::ones({8, 2}, TestDevice());
    return std::get<0>(at::lstm(x, {state, state},
                                {weights, weights, weights, weights},
                                /*has_biases=*/false, /*num_layers=*/2,
                                /*dropout=*/0.5, /*train=*/true,
                                /*bidirectional=*/false,
                                /*batch_first=*/false));
  };
}

// What layers draw by, each with the default generator.
std::map<std::string, Draw> Draws() {
  const c10::Device device = TestDevice();
  const at::Tensor x = at::ones({4, 64}, device);
  const at::Tensor heads = at::ones({1, 2, 16, 8}, device);
  return {
      {"dropout", [=] { return at::dropout(x, 0.5, /*train=*/true); }},
      {"bernoulli", [=] { return at::bernoulli(x * 0.5); }},
      {"rrelu", [=] { return at::rrelu(-x, 0.1, 0.9, /*training=*/true); }},
      {"attention",
       [=] {
         return at::scaled_dot_product_attention(heads, heads, heads, {},
                                                 /*dropout_p=*/0.5);
       }},
      {"lstm", Recurrent()},
      {"rand", [=] { return at::rand({100}, device); }},
      {"rand on the CPU", [=] { return at::rand({100}, OnCpu()).to(device); }},
      {"randn", [=] { return at::randn({100}, device); }},
      {"randint", [=] { return at::randint(1000, {100}, device); }},
      {"randperm", [=] { return at::randperm(100, device); }},
      {"uniform_", [=] { return at::empty({100}, device).uniform_(); }},
      {"multinomial", [=] { return at::multinomial(x, 10); }},
  };
}

// On the CPU, where results are compared.
at::Tensor Value(const Draw& draw) { return draw().cpu(); }

at::Tensor Within(uint64_t seed, const Draw& draw) {
  const DefaultGeneratorScope scope(seed);
  return Value(draw);
}

TEST_P(DefaultGeneratorTest, DrawsGoByTheSeedAlone) {
  for (const auto& [name, draw] : Draws()) {
    const at::Tensor once = Within(1, draw);
    at::randn({7}, TestDevice());  // moves the device's generator
    EXPECT_TRUE(Within(1, draw).equal(once)) << name;
    EXPECT_FALSE(Within(2, draw).equal(once)) << name;
  }
}

TEST_P(DefaultGeneratorTest, TheDevicesGeneratorsAreLeftAlone) {
  const Draw here = [] { return at::rand({5}, TestDevice()); };
  const Draw there = [] { return at::rand({5}, OnCpu()); };
  at::manual_seed(3);
  const at::Tensor expected = Value(here);
  const at::Tensor expected_there = there();
  at::manual_seed(3);
  for (const auto& each : Draws()) Within(1, each.second);
  EXPECT_TRUE(Value(here).equal(expected));
  EXPECT_TRUE(there().equal(expected_there));
}

TEST_P(DefaultGeneratorTest, DrawsOfOneScopeFollowEachOther) {
  const DefaultGeneratorScope scope(1);
  const Draw draw = [] { return at::rand({5}, TestDevice()); };
  EXPECT_FALSE(Value(draw).equal(Value(draw)));
}

// Not different ones, if also as good.
TEST(DefaultGeneratorOfTheCpuTest, DrawsAreThoseOfItsSeed) {
  for (const auto& [name, draw] : Draws()) {
    at::manual_seed(5);
    const at::Tensor expected = draw();
    EXPECT_TRUE(Within(5, draw).equal(expected)) << name;
  }
}

TEST_P(DefaultGeneratorTest, AGeneratorThatIsGivenIsKept) {
  const Draw draw = [] {
    const at::Generator given =
        at::globalContext().defaultGenerator(TestDevice()).clone();
    return at::rand({5}, given, TestDevice());
  };
  const at::Tensor expected = Value(draw);
  EXPECT_TRUE(Within(1, draw).equal(expected));
}

TEST_P(DefaultGeneratorTest, ScopesNest) {
  const Draw draw = [] { return at::rand({5}, TestDevice()); };
  const at::Tensor inner = Within(2, draw);
  const at::Tensor outer = Within(1, draw);
  const DefaultGeneratorScope scope(1);
  EXPECT_TRUE(Within(2, draw).equal(inner));
  EXPECT_TRUE(Value(draw).equal(outer));
}

TEST_P(DefaultGeneratorTest, ThreadsOfOneDeviceDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  const c10::Device device = TestDevice();
  const Draw draw = [device] {
    at::Tensor sum = at::ones({50}, device);
    for (int i = 0; i < 200; ++i) sum = sum + at::rand({50}, device);
    return sum;
  };
  std::vector<at::Tensor> found(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { found[i] = Within(i, draw); });
  }
  for (std::thread& each : threads) each.join();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(found[i].equal(Within(i, draw))) << i;
  }
}

TEST_P(DefaultGeneratorTest, GradientsPassThrough) {
  const DefaultGeneratorScope scope(1);
  const at::Tensor x = at::ones({1000}, TestDevice()).requires_grad_();
  const at::Tensor y = at::dropout(x, 0.25, /*train=*/true);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));
}

}  // namespace
}  // namespace tandem::default_generator_test
