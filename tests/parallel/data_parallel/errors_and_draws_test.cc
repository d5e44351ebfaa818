// What can go wrong around replicas: named, and over when Forward is back.

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/torch_status.h"
#include "core/context/compute_context.h"
#include "core/loss/loss_terms.h"
#include "core/random/default_generator.h"
#include "core/testing/statuses.h"
#include "models/layers/dropout.h"
#include "parallel/data_parallel.h"
#include "tests/parallel/data_parallel/fixture.h"

namespace tandem::errors_and_draws_test {
namespace {

// Does what it is told for a part of the batch, known by its first number.
struct ToldNet : torch::nn::Cloneable<ToldNet> {
  using Work = std::function<void(int part)>;
  explicit ToldNet(Work told_work) : work(std::move(told_work)) { reset(); }
  void reset() override { in = register_module("in", torch::nn::Linear(1, 1)); }
  at::Tensor forward(const at::Tensor& x) {
    work(static_cast<int>(x[0].item<double>()));
    return in(x);
  }
  Work work;
  torch::nn::Linear in{nullptr};
};

struct PlainNet : torch::nn::Module {
  PlainNet() : in(register_module("in", torch::nn::Linear(4, 2))) {}
  at::Tensor forward(const at::Tensor& x) { return in(x); }
  torch::nn::Linear in;
};

class DataParallelErrorsTest : public DataParallelTest {
 protected:
  // A row for each part: its number.
  at::Tensor Parts() const {
    at::Tensor parts = at::zeros({value(), 1}, at::kDouble);
    for (int i = 0; i < value(); ++i) parts[i].fill_(i);
    return parts;
  }
  auto Told(ToldNet::Work work) const {
    const auto net = std::make_shared<ToldNet>(std::move(work));
    net->to(at::kDouble);
    net->to(devices()[0]);
    return Wrapped(net, devices());
  }
};

TEST_P(DataParallelErrorsTest, AnExceptionInAReplicaNamesItsDevice) {
  for (int bad = 0; bad < value(); ++bad) {
    bool fails = true;
    std::atomic<int> ended{0};
    const auto parallel = Told([&](int part) {
      if (fails && part == bad) {
        TORCH_CHECK_VALUE(false, "Badness!");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++ended;
    });
    const absl::Status status = parallel->Forward(Parts()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(status.message(), "replica " + std::to_string(bad) + " of " +
                                    std::to_string(value()) + ", on " +
                                    devices()[static_cast<size_t>(bad)].str() +
                                    ": Badness!");
    // The others have ended, too.
    EXPECT_EQ(ended, value() - 1);
    fails = false;
    const at::Tensor outputs = ValueOf(parallel->Forward(Parts()));
    outputs.sum().backward();
    EXPECT_TRUE(parallel->module()->in->weight.grad().defined());
  }
}

TEST_P(DataParallelErrorsTest, TheFirstOfSeveralIsTold) {
  const auto parallel = Told([](int part) {
    throw std::runtime_error("part " + std::to_string(part));
  });
  const absl::Status status = parallel->Forward(Parts()).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "part 0"));
}

TEST_P(DataParallelErrorsTest, AModuleThatCannotBeCopiedIsNamed) {
  const auto net = std::make_shared<PlainNet>();
  net->to(devices()[0]);
  const absl::Status status = MakeDataParallel(net, options()).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status, Says("PlainNet cannot be copied to",
                           "clone() has not been implemented",
                           "give DataParallel a factory"));
}

TEST_P(DataParallelErrorsTest, AFactoryMakesWhatCannotBeCopied) {
  const auto make = [] {
    auto net = std::make_shared<PlainNet>();
    net->to(at::kDouble);
    return net;
  };
  const auto net = make(), alone = make();
  for (const auto& each : {net, alone}) {
    FillModule(*each);
    each->to(devices()[0]);
  }
  std::vector<std::string> made;
  const auto parallel = ValueOf(MakeDataParallel(
      net, options(),
      [&](c10::Device device) -> absl::StatusOr<std::shared_ptr<PlainNet>> {
        made.push_back(device.str());
        return make();
      }));
  EXPECT_EQ(made.size(), devices().size());
  const at::Tensor x = InputOf(8, 4, 0, devices()[0]);
  ValueOf(parallel->Forward(x)).square().sum().backward();
  alone->forward(x).square().sum().backward();
  ExpectModule(*net, *alone, false, "of a factory");
}

TEST_P(DataParallelErrorsTest, AFactorysErrorsAreTold) {
  const auto net = NewNet<TwiceNet>(devices()[0]);
  using Made = absl::StatusOr<std::shared_ptr<TwiceNet>>;
  const absl::Status refused =
      MakeDataParallel(net, options(), [](c10::Device) -> Made {
        return absl::UnavailableError("no net");
      }).status();
  EXPECT_EQ(refused, absl::UnavailableError("no net"));
  const absl::Status another =
      MakeDataParallel(net, options(), [](c10::Device) -> Made {
        auto other = std::make_shared<TwiceNet>();
        other->in->weight.set_data(at::ones({3, 5}));
        return other;
      }).status();
  EXPECT_THAT(another,
              InvalidArgument("replica 0 is not a copy of the module",
                              "parameter in.weight, Double [5, 5], and the "
                              "replica Float [3, 5]"));
  const absl::Status itself =
      MakeDataParallel(net, options(), [&](c10::Device) -> Made {
        return net;
      }).status();
  EXPECT_THAT(itself, InvalidArgument("replica 0 is the module itself",
                                      " is the same tensor"));
}

// PyTorch's test_data_parallel_model_device.
TEST_P(DataParallelErrorsTest, AModuleElsewhereIsRefused) {
  if (devices()[0].is_cpu()) return;
  const auto refusal = [&](const absl::Status& status) {
    EXPECT_THAT(status,
                InvalidArgument("must have its parameters and buffers on "
                                "device " +
                                    devices()[0].str(),
                                "parameter scale is on"));
  };
  auto net = NewNet<TwiceNet>(devices()[0]);
  const auto parallel = ValueOf(MakeDataParallel(net, options()));
  const at::Tensor x = InputOf(8, 5, 0, devices()[0]);
  net->to(devices()[1]);
  refusal(parallel->Forward(x).status());
  refusal(MakeDataParallel(net, options()).status());
  net->to(c10::kCPU);
  refusal(parallel->Forward(x).status());
  refusal(RunDataParallel(net, options(), x).status());
  net->to(devices()[0]);
  ValueOf(parallel->Forward(x));
  DataParallelOptions swapped = options();
  std::swap(swapped.device_ids[0], swapped.device_ids[1]);
  EXPECT_FALSE(MakeDataParallel(net, swapped).ok());
}

TEST_P(DataParallelErrorsTest, ADeviceWithoutANumber) {
  if (devices()[0].is_cpu()) return;
  const auto net = NewNet<TwiceNet>(devices()[0]);
  const std::vector<c10::Device> unnumbered = {
      c10::Device(devices()[0].type())};
  EXPECT_THAT(MakeDataParallel(net, {unnumbered}).status(),
              Says("has no number"));
}

TANDEM_ON_SEVERAL(DataParallelErrorsTest);

// Random numbers in replicas: each draws its own, and the same again.

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
}  // namespace tandem::errors_and_draws_test
