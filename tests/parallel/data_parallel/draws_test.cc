// Random numbers in replicas: each draws its own, and the same again.

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/dropout.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/loss/loss_terms.h"
#include "core/random/default_generator.h"
#include "core/random/sample_scope.h"
#include "gtest/gtest.h"
#include "models/layers/dropout.h"
#include "parallel/data_parallel.h"
#include "tests/parallel/data_parallel/fixture.h"

namespace tandem::draws_test {
namespace {

struct DropNet : torch::nn::Cloneable<DropNet> {
  DropNet() { reset(); }
  void reset() override {
    drop = register_module("drop", torch::nn::Dropout(0.5));
  }
  at::Tensor forward(const at::Tensor& x) { return drop(x); }
  torch::nn::Dropout drop{nullptr};
};

struct SampleDropNet : torch::nn::Cloneable<SampleDropNet> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) {
    return SampleDropout(x, 0.5, "drop");
  }
};

class DrawsTest : public DataParallelTest {
 protected:
  static constexpr int64_t kWidth = 64;
  at::Tensor Ones() const {
    return at::ones({3 * value(), kWidth}).to(devices()[0]);
  }
  void Seed() const {
    for (const c10::Device& each : devices()) {
      const c10::Device device = each.is_cpu() ? c10::kCPU : each;
      at::Generator generator = at::globalContext().defaultGenerator(device);
      generator.set_current_seed(7);
    }
  }
};

TEST_P(DrawsTest, ReplicasDrawOtherMasks) {
  const auto parallel = Wrapped(std::make_shared<DropNet>(), devices());
  Seed();
  const at::Tensor first = ValueOf(parallel->Forward(Ones())).cpu();
  const std::vector<at::Tensor> parts = first.chunk(value());
  for (size_t i = 1; i < parts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(parts[i].equal(parts[j])) << i << " and " << j;
    }
  }
  // Another forward draws others, and a seed brings the first ones back.
  EXPECT_FALSE(ValueOf(parallel->Forward(Ones())).cpu().equal(first));
  for (int again = 0; again < 5; ++again) {
    Seed();
    EXPECT_TRUE(ValueOf(parallel->Forward(Ones())).cpu().equal(first));
  }
}

// Replica 0 draws what the module alone would; replicas are made, and others
// draw, without a trace.
TEST_P(DrawsTest, TheCallersGeneratorGoesOnAsInTheModule) {
  const auto net = std::make_shared<DropNet>();
  Seed();
  const auto parallel = Wrapped(net, devices());
  const at::Tensor found = ValueOf(parallel->Forward(Ones())).cpu();
  const at::Tensor after = at::rand({4}, Ones().options()).cpu();
  Seed();
  const at::Tensor part = net->forward(Ones().chunk(value())[0]).cpu();
  EXPECT_TRUE(found.narrow(0, 0, part.size(0)).equal(part));
  EXPECT_TRUE(at::rand({4}, Ones().options()).cpu().equal(after));
}

TEST_P(DrawsTest, WithinAScopeOfGenerators) {
  const auto parallel = Wrapped(std::make_shared<DropNet>(), devices());
  const auto draw = [&](uint64_t seed) {
    const DefaultGeneratorScope scope(seed);
    return ValueOf(parallel->Forward(Ones())).cpu();
  };
  const at::Tensor first = draw(3);
  EXPECT_FALSE(draw(4).equal(first));
  EXPECT_TRUE(draw(3).equal(first));
}

// What is a function of the sample is as on one device, bit for bit.
TEST_P(DrawsTest, SamplesKeepTheirMasks) {
  const auto net = std::make_shared<SampleDropNet>();
  const auto parallel = Wrapped(net, devices());
  const SampleScope scope({/*seed=*/5, /*step=*/2, /*first=*/40});
  for (const int64_t rows : {3 * value(), 7, 5, 1}) {
    const at::Tensor x = at::ones({rows, kWidth}).to(devices()[0]);
    EXPECT_TRUE(ValueOf(parallel->Forward(x)).equal(net->forward(x))) << rows;
  }
}

struct TermNet : torch::nn::Cloneable<TermNet> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) {
    AddAuxiliaryLoss("mean", x.mean());
    return x;
  }
};

// A mean over samples, whoever has them.
TEST_P(DrawsTest, LossesThatLayersAdd) {
  const auto parallel = Wrapped(std::make_shared<TermNet>(), devices());
  for (const int64_t rows : {1, 5, 8}) {
    const at::Tensor x =
        InputOf(rows, 3, 0, devices()[0]).detach().requires_grad_(true);
    LossTerms terms;
    {
      const LossTerms::Scope scope(&terms);
      ValueOf(parallel->Forward(x));
    }
    ASSERT_FALSE(terms.terms().empty());
    at::Tensor sum;
    for (const LossTerm& each : terms.terms()) {
      EXPECT_EQ(each.name, "mean");
      sum = sum.defined() ? sum + each.loss : each.loss;
    }
    ExpectClose(sum, x.mean(), std::to_string(rows));
    sum.backward();
    EXPECT_TRUE(x.grad().defined());
  }
}

TANDEM_ON_SEVERAL(DrawsTest);

}  // namespace
}  // namespace tandem::draws_test
