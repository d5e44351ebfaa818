// Our optimizers against torch::optim, over steps in which some parameters have
// no gradient.

#include "parallel/optim/optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/stored_tensors.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "parallel/optim/make_optimizer.h"

namespace tandem::optimizer_test {
namespace {

constexpr int kSteps = 12;

// The same parameters and gradients, whoever asks.
std::vector<at::Tensor> MakeParameters() {
  auto generator = at::detail::createCPUGenerator(1);
  std::vector<at::Tensor> parameters;
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{5, 7}, {1}, {33}, {0}, {4, 3, 2}}) {
    parameters.push_back(
        at::randn(shape, generator).to(TestDevice()).requires_grad_(true));
  }
  return parameters;
}

// Whether the loss of that step depends on parameter `p`.
bool HasGradient(int step, size_t p) {
  if (p == 1) return step % 3 == 1;
  if (p == 2) return step % 4 != 0;
  return true;
}

// A loss that leaves out parameters whose turn it is not.
at::Tensor Loss(const std::vector<at::Tensor>& parameters, int step) {
  auto generator = at::detail::createCPUGenerator(100 + step);
  at::Tensor loss;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor factor =
        at::randn(parameters[p].sizes(), generator).to(TestDevice());
    if (!HasGradient(step, p)) continue;
    const at::Tensor term =
        parameters[p].mul(factor).add(parameters[p].pow(2)).sum();
    loss = loss.defined() ? loss.add(term) : term;
  }
  return loss;
}

double RateAt(int step) { return 0.1 / (1 + step); }

std::vector<at::Tensor> TrainWithPyTorch(
    torch::optim::Optimizer& optimizer,
    const std::vector<at::Tensor>& parameters) {
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    Loss(parameters, step).backward();
    optimizer.param_groups()[0].options().set_lr(RateAt(step));
    optimizer.step();
  }
  return parameters;
}

NamedTensors Named(const std::vector<at::Tensor>& parameters) {
  NamedTensors named;
  for (size_t i = 0; i < parameters.size(); ++i) {
    named.emplace_back("p" + std::to_string(i), parameters[i]);
  }
  return named;
}

// Some parameters with one of our optimizers.
struct Ours {
  explicit Ours(const OptimizerOptions& options)
      : parameters(MakeParameters()),
        buffers(MakeFlatBuffers(Named(parameters))),
        optimizer(*MakeOptimizer(options, buffers)) {}

  void Train(int from, int to) {
    for (int step = from; step < to; ++step) {
      for (auto& buffer : buffers) buffer->ZeroGrad();
      Loss(parameters, step).backward();
      optimizer->Step(RateAt(step));
    }
  }

  std::vector<at::Tensor> parameters;
  FlatBuffers buffers;
  std::unique_ptr<Optimizer> optimizer;
};

// Within a few units in the last place of float: the fused kernels and
// torch::optim's sequence of operations round at different points.
void ExpectClose(const std::vector<at::Tensor>& actual,
                 const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(at::allclose(actual[i], expected[i], /*rtol=*/2e-6,
                             /*atol=*/1e-6))
        << "parameter " << i << "\n"
        << actual[i] << "\n"
        << expected[i];
  }
}

void ExpectSame(const std::vector<at::Tensor>& actual,
                const std::vector<at::Tensor>& expected) {
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(actual[i].equal(expected[i])) << "parameter " << i;
  }
}

class OptimizerTest : public DeviceTypesAnd<OptimizerOptions> {};

struct PyTorchMaker {
  std::vector<at::Tensor> parameters;

  std::unique_ptr<torch::optim::Optimizer> operator()(
      const SgdOptions& options) const {
    return std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(0.1)
                        .momentum(options.momentum)
                        .dampening(options.dampening)
                        .weight_decay(options.weight_decay)
                        .nesterov(options.nesterov));
  }
  std::unique_ptr<torch::optim::Optimizer> operator()(
      const AdamOptions& options) const {
    return std::make_unique<torch::optim::Adam>(
        parameters, torch::optim::AdamOptions()
                        .betas({options.beta1, options.beta2})
                        .eps(options.eps)
                        .weight_decay(options.weight_decay)
                        .amsgrad(options.amsgrad));
  }
  std::unique_ptr<torch::optim::Optimizer> operator()(
      const AdamWOptions& options) const {
    return std::make_unique<torch::optim::AdamW>(
        parameters, torch::optim::AdamWOptions()
                        .betas({options.beta1, options.beta2})
                        .eps(options.eps)
                        .weight_decay(options.weight_decay)
                        .amsgrad(options.amsgrad));
  }
  // C++'s has no Muon: muon_test.cc.
  std::unique_ptr<torch::optim::Optimizer> operator()(
      const MuonOptions& /*options*/) const {
    return nullptr;
  }
};

TEST_P(OptimizerTest, EqualsPyTorchsWhereSomeHaveNoGradient) {
  const std::vector<at::Tensor> expected = MakeParameters();
  TrainWithPyTorch(*absl::visit(PyTorchMaker{expected}, value()), expected);
  Ours ours(value());
  ours.Train(0, kSteps);
  ExpectClose(ours.parameters, expected);
}

TEST_P(OptimizerTest, GoesOnFromItsStateWithTheSameBits) {
  Ours whole(value());
  whole.Train(0, kSteps);
  Ours first(value());
  first.Train(0, 3);  // parameter 1 has been stepped once, 2 twice
  Ours second(value());
  for (size_t i = 0; i < first.parameters.size(); ++i) {
    second.parameters[i].detach().copy_(first.parameters[i].detach());
  }
  const absl::Status status =
      second.optimizer->LoadState(first.optimizer->State());
  ASSERT_TRUE(status.ok()) << status;
  second.Train(3, kSteps);
  ExpectSame(second.parameters, whole.parameters);
}

TEST_P(OptimizerTest, BitsDoNotDependOnTheRuns) {
  Ours together(value());
  Ours apart(value());
  for (int step = 0; step < 3; ++step) {
    for (Ours* each : {&together, &apart}) {
      each->buffers[0]->ZeroGrad();
      Loss(each->parameters, 1).backward();  // all have a gradient
    }
    together.optimizer->Step(0.1);
    const size_t count = apart.buffers[0]->slots().size();
    for (size_t only = 0; only < count; ++only) {
      for (size_t i = 0; i < count; ++i) {
        apart.buffers[0]->set_has_gradient(i, i == only);
      }
      apart.optimizer->Step(0.1);
    }
  }
  ExpectSame(apart.parameters, together.parameters);
}

// Autograd hears of it, and so does whoever keeps copies of parameters
// (DataParallel's replicas).
TEST_P(OptimizerTest, AStepCountsAsAWriteToWhatHadAGradient) {
  Ours ours(value());
  ours.Train(0, 1);
  for (const at::Tensor& each : ours.parameters) {
    const uint32_t before = each._version();
    const at::Tensor gradient = each.grad();
    each.mutable_grad().reset();
    ours.optimizer->Step(0.1);
    EXPECT_EQ(each._version(), before);
    if (gradient.defined()) {
      each.mutable_grad() = gradient;
      ours.optimizer->Step(0.1);
      EXPECT_EQ(each._version(), before + 1);
    }
  }
}

TEST_P(OptimizerTest, ForgetsItsStateWhenTheLoadedOneIsEmpty) {
  Ours ours(value());
  ours.Train(0, 2);
  ASSERT_TRUE(ours.optimizer->LoadState({}).ok());
  EXPECT_TRUE(ours.optimizer->State().empty());
}

SgdOptions Sgd(double momentum, double dampening, double weight_decay,
               bool nesterov) {
  return {momentum, dampening, weight_decay, nesterov};
}

TANDEM_ON_DEVICE_TYPES_AND(
    OptimizerTest,
    testing::Values(OptimizerOptions(Sgd(0, 0, 0, false)),
                    OptimizerOptions(Sgd(0, 0, 0.1, false)),
                    OptimizerOptions(Sgd(0.9, 0, 0, false)),
                    OptimizerOptions(Sgd(0.9, 0.5, 0.01, false)),
                    OptimizerOptions(Sgd(0.9, 0, 0.01, true)),
                    OptimizerOptions(AdamOptions{}),
                    OptimizerOptions(AdamOptions{0.8, 0.95, 1e-6, 0.1}),
                    OptimizerOptions(AdamOptions{0.8, 0.95, 1e-6, 0.1, true}),
                    OptimizerOptions(AdamWOptions{}),
                    OptimizerOptions(AdamWOptions{0.8, 0.5, 1e-6, 0.1, true}),
                    OptimizerOptions(AdamWOptions{0.8, 0.95, 1e-6, 0.1})));

std::vector<std::string> Names(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& each : tensors) names.push_back(each.first);
  return names;
}

class OptimizerStateTest : public DeviceTypeTest {};

TEST_P(OptimizerStateTest, HasPyTorchsNamesForSteppedParameters) {
  Ours sgd(SgdOptions{0.9});
  EXPECT_TRUE(sgd.optimizer->State().empty());
  sgd.Train(0, 1);  // neither parameter 1 nor 2 has a gradient
  EXPECT_EQ(
      Names(sgd.optimizer->State()),
      (std::vector<std::string>{"p0.momentum_buffer", "p3.momentum_buffer",
                                "p4.momentum_buffer"}));
  Ours plain(SgdOptions{});
  plain.Train(0, 2);
  EXPECT_TRUE(plain.optimizer->State().empty());
  Ours adam(AdamOptions{});
  adam.Train(0, 3);
  const NamedTensors state = adam.optimizer->State();
  ASSERT_EQ(state.size(), 15u);
  EXPECT_EQ(state[3].first, "p1.exp_avg");
  EXPECT_EQ(state[4].first, "p1.exp_avg_sq");
  EXPECT_EQ(state[5].first, "p1.step");
  EXPECT_EQ(state[2].second.item<float>(), 3);  // p0.step
  EXPECT_EQ(state[5].second.item<float>(), 1);
  EXPECT_EQ(state[8].second.item<float>(), 2);  // p2.step
  EXPECT_EQ(state[0].second.sizes(), adam.parameters[0].sizes());
}

// So that saving it takes no memory.
TEST_P(OptimizerStateTest, AliasesWhatIsLive) {
  Ours adam(AdamOptions{});
  adam.Train(0, 1);
  const NamedTensors state = adam.optimizer->State();
  const at::Tensor before = state[0].second.clone();
  adam.Train(1, 2);
  EXPECT_FALSE(state[0].second.equal(before));
  const NamedTensors now = adam.optimizer->State();
  EXPECT_TRUE(state[0].second.is_alias_of(now[0].second));
}

TEST_P(OptimizerStateTest, RefusesWhatDoesNotFitAndChangesNothing) {
  Ours adam(AdamOptions{});
  adam.Train(0, 3);
  NamedTensors good = adam.optimizer->State();
  for (auto& each : good) each.second = each.second.clone();
  NamedTensors foreign = good;
  foreign.emplace_back("p9.exp_avg", good[0].second);
  NamedTensors other = good;
  other.emplace_back("p0.momentum_buffer", good[0].second);
  NamedTensors missing = good;
  missing.erase(missing.begin() + 1);
  NamedTensors reshaped = good;
  reshaped[0].second = good[0].second.flatten();
  NamedTensors retyped = good;
  retyped[0].second = good[0].second.to(at::kDouble);
  const auto with_step = [&good](double step) {
    NamedTensors state = good;
    state[2].second = at::full({}, step, at::kFloat);
    return state;
  };
  const std::pair<NamedTensors, const char*> cases[] = {
      {foreign, "p9.exp_avg has no place here: Adam keeps exp_avg, exp_avg_sq"},
      {other, "p0.momentum_buffer has no place here"},
      {missing, "p0.exp_avg_sq: expected Float [5, 7], got nothing"},
      {reshaped, "p0.exp_avg: expected Float [5, 7], got Float [35]"},
      {retyped, "p0.exp_avg: expected Float [5, 7], got Double [5, 7]"},
      {with_step(-1), "p0.step is -1, expected a number of steps: whole"},
      {with_step(2.5), "p0.step is 2.5, expected a number of steps"},
      {with_step(NAN), "p0.step is nan, expected a number of steps"},
      {with_step(INFINITY), "p0.step is inf, expected a number of steps"},
      {with_step(1e30), "p0.step is 1e+30, expected a number of steps"},
  };
  for (const auto& [state, message] : cases) {
    const absl::Status status = adam.optimizer->LoadState(state);
    EXPECT_THAT(status, InvalidArgument(message));
  }
  const NamedTensors after = adam.optimizer->State();
  ASSERT_EQ(after.size(), good.size());
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_TRUE(after[i].second.equal(good[i].second)) << good[i].first;
  }
}

TEST(OptimizerOptions, WrongValuesAreNamed) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::pair<OptimizerOptions, const char*> cases[] = {
      {Sgd(-0.1, 0, 0, false), "momentum is -0.1"},
      {Sgd(0, 0, inf, false), "weight_decay is inf"},
      {Sgd(0, -1, 0, false), "dampening is -1"},
      {Sgd(0, 0, 0, true), "nesterov needs a momentum"},
      {Sgd(0.9, 0.1, 0, true), "nesterov needs a momentum"},
      {AdamOptions{1, 0.9}, "beta1 is 1"},
      {AdamOptions{0.9, -1}, "beta2 is -1"},
      {AdamOptions{0.9, 0.9, -1}, "eps is -1"},
      {AdamWOptions{0.9, 0.9, 0, -1}, "weight_decay is -1"},
  };
  for (const auto& [options, message] : cases) {
    const absl::Status status = MakeOptimizer(options, {}).status();
    EXPECT_THAT(status, InvalidArgument(message));
  }
}

TANDEM_ON_DEVICE_TYPES(OptimizerStateTest);

}  // namespace
}  // namespace tandem::optimizer_test
