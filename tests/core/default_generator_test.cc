#include "core/default_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/rrelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace tandem {
namespace {

using Draw = std::function<at::Tensor()>;

// What layers draw by, each with the default generator.
std::map<std::string, Draw> Draws() {
  const at::Tensor x = at::ones({4, 64});
  const at::Tensor heads = at::ones({1, 2, 16, 8});
  return {
      {"dropout", [=] { return at::dropout(x, 0.5, /*train=*/true); }},
      {"bernoulli", [=] { return at::bernoulli(x * 0.5); }},
      {"rrelu", [=] { return at::rrelu(-x, 0.1, 0.9, /*training=*/true); }},
      {"attention",
       [=] {
         return at::scaled_dot_product_attention(heads, heads, heads, {},
                                                 /*dropout_p=*/0.5);
       }},
      {"rand", [] { return at::rand({100}); }},
      {"randn", [] { return at::randn({100}); }},
      {"randint", [] { return at::randint(1000, {100}); }},
      {"randperm", [] { return at::randperm(100); }},
      {"uniform_", [] { return at::empty({100}).uniform_(); }},
      {"multinomial", [=] { return at::multinomial(x, 10); }},
  };
}

at::Tensor Within(uint64_t seed, const Draw& draw) {
  const DefaultGeneratorScope scope(seed, c10::kCPU);
  return draw();
}

TEST(DefaultGeneratorTest, DrawsGoByTheSeedAlone) {
  for (const auto& [name, draw] : Draws()) {
    const at::Tensor once = Within(1, draw);
    at::randn({7});  // moves the process's generator
    EXPECT_TRUE(Within(1, draw).equal(once)) << name;
    EXPECT_FALSE(Within(2, draw).equal(once)) << name;
  }
}

TEST(DefaultGeneratorTest, TheProcesssGeneratorIsLeftAlone) {
  at::manual_seed(3);
  const at::Tensor expected = at::rand({5});
  at::manual_seed(3);
  for (const auto& each : Draws()) Within(1, each.second);
  EXPECT_TRUE(at::rand({5}).equal(expected));
}

TEST(DefaultGeneratorTest, DrawsOfOneScopeFollowEachOther) {
  const DefaultGeneratorScope scope(1, c10::kCPU);
  EXPECT_FALSE(at::rand({5}).equal(at::rand({5})));
}

TEST(DefaultGeneratorTest, AGeneratorThatIsGivenIsKept) {
  const auto draw = [] {
    return at::rand({5}, at::detail::createCPUGenerator(9));
  };
  const at::Tensor expected = draw();
  EXPECT_TRUE(Within(1, draw).equal(expected));
}

TEST(DefaultGeneratorTest, ScopesNest) {
  const Draw draw = [] { return at::rand({5}); };
  const at::Tensor inner = Within(2, draw);
  const at::Tensor outer = Within(1, draw);
  const DefaultGeneratorScope scope(1, c10::kCPU);
  EXPECT_TRUE(Within(2, draw).equal(inner));
  EXPECT_TRUE(draw().equal(outer));
}

TEST(DefaultGeneratorTest, ThreadsDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  const Draw draw = [] {
    at::Tensor sum = at::ones({50});
    for (int i = 0; i < 200; ++i) sum = sum + at::rand({50});
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

TEST(DefaultGeneratorTest, GradientsPassThrough) {
  const DefaultGeneratorScope scope(1, c10::kCPU);
  const at::Tensor x = at::ones({1000}).requires_grad_();
  const at::Tensor y = at::dropout(x, 0.25, /*train=*/true);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));
}

}  // namespace
}  // namespace tandem
