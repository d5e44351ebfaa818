// PyTorch's own cases of DataParallel (1.13.1), as torch_cases_test has them:
// modules, their parameters, buffers and gradients.

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/modules/container/parameterlist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "parallel/data_parallel.h"
#include "tests/parallel/data_parallel/fixture.h"

namespace tandem::torch_modules_test {
namespace {

class TorchModulesTest : public DataParallelTest {
 protected:
  template <typename Net>
  static std::shared_ptr<Net> CopyOf(const std::shared_ptr<Net>& net) {
    return std::dynamic_pointer_cast<Net>(net->clone());
  }
};

struct BufferNet : torch::nn::Cloneable<BufferNet> {
  BufferNet() { reset(); }
  void reset() override {
    t_rg = register_buffer("t_rg", at::ones({6}, at::kDouble));
    t_not_rg = register_buffer("t_not_rg", at::ones({6}, at::kDouble));
    t_rg.requires_grad_(true);
  }
  at::Tensor forward(const at::Tensor& x) { return x * t_rg + t_not_rg; }
  at::Tensor t_rg, t_not_rg;
};

// test_data_parallel_buffers_requiring_grad
TEST_P(TorchModulesTest, BuffersThatRequireAGradient) {
  const auto net = std::make_shared<BufferNet>();
  net->to(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  const at::Tensor x = InputOf(8, 6, 0, devices()[0]);
  for (int again = 0; again < 2; ++again) {
    const at::Tensor outputs = ValueOf(parallel->Forward(x));
    ExpectClose(outputs, net->forward(x), "outputs");
    net->t_rg.mutable_grad().reset();
    outputs.square().sum().backward();
    ExpectClose(net->t_rg.grad(), (net->forward(x) * x).sum(0).mul(2),
                "gradient");
    const at::NoGradGuard no_grad;
    net->t_rg.add_(1);
  }
}

struct RnnNet : torch::nn::Cloneable<RnnNet> {
  RnnNet() { reset(); }
  void reset() override {
    rnn = register_module(
        "rnn", torch::nn::LSTM(
                   torch::nn::LSTMOptions(3, 5).batch_first(true).bidirectional(
                       true)));
  }
  std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>> forward(
      const at::Tensor& x) {
    rnn->flatten_parameters();
    return rnn(x);
  }
  torch::nn::LSTM rnn{nullptr};
};

// test_data_parallel_rnn, #21108
TEST_P(TorchModulesTest, RecurrentModules) {
  const Pair<RnnNet> pair(devices());
  const auto& [net, alone, parallel] = pair;
  const at::Tensor x = InputOf(4, 4 * 3, 0, devices()[0]).view({4, 4, 3});
  {
    const at::NoGradGuard no_grad;
    ValueOf(parallel->Forward(x.narrow(0, 0, 2)));
  }
  const auto step = [](RnnNet& trained, const at::Tensor& outputs) {
    torch::optim::SGD optimizer(trained.parameters(), 10.);
    at::mse_loss(outputs, at::zeros_like(outputs)).backward();
    optimizer.step();
  };
  step(*net, std::get<0>(ValueOf(parallel->Forward(x))));
  step(*alone, std::get<0>(alone->forward(x)));
  ExpectModule(*net, *alone, is_alone(), "after a step");
}

// test_data_parallel_sparse
TEST_P(TorchModulesTest, SparseGradients) {
  if (!devices()[0].is_cpu()) return;  // simulated devices have none
  using torch::nn::Embedding;
  Embedding net(torch::nn::EmbeddingOptions(10, 5).sparse(true));
  Embedding alone(
      std::dynamic_pointer_cast<torch::nn::EmbeddingImpl>(net->clone()));
  const at::Tensor x = at::arange(24).remainder(7).view({12, 2});
  ValueOf(Wrapped(net, devices())->Forward(x)).sum().backward();
  alone(x).sum().backward();
  EXPECT_TRUE(net->weight.grad().is_sparse());
  ExpectClose(net->weight.grad().to_dense(), alone->weight.grad().to_dense(),
              "gradient");
}

struct ComplexNet : torch::nn::Cloneable<ComplexNet> {
  ComplexNet() { reset(); }
  void reset() override {
    values =
        register_parameter("values", at::ones({4}, at::kComplexDouble).mul(2));
  }
  at::Tensor forward(const at::Tensor& x) { return x * values; }
  at::Tensor values;
};

// test_data_parallel_complex: stays complex here, as in C++ everywhere.
TEST_P(TorchModulesTest, ComplexParameters) {
  if (!devices()[0].is_cpu()) return;
  const auto net = std::make_shared<ComplexNet>();
  const at::Tensor x = InputOf(8, 4, 0, devices()[0]).to(at::kComplexDouble);
  const at::Tensor outputs = ValueOf(Wrapped(net, devices())->Forward(x));
  ExpectSameBits(at::view_as_real(outputs), at::view_as_real(x * 2), "outputs");
  at::real(outputs).sum().backward();
  EXPECT_TRUE(net->values.grad().defined());
}

struct ConvNet : torch::nn::Cloneable<ConvNet> {
  ConvNet() { reset(); }
  void reset() override {
    conv = register_module(
        "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 2)));
    fc = register_module("fc", torch::nn::Linear(8, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::log_softmax(fc(at::relu(conv(x)).reshape({-1, 8})), 1);
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear fc{nullptr};
};

// DataParallelNumericalEquivalence_MultiCUDA, and test_strided_grad_layout
TEST_P(TorchModulesTest, ThreeStepsInAnyLayout) {
  for (const auto layout :
       {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const auto net = NewNet<ConvNet>(devices()[0]);
    net->conv->weight.set_data(net->conv->weight.data().contiguous(layout));
    const auto alone = CopyOf(net);
    const auto parallel = Wrapped(net, devices());
    const auto step = [](ConvNet& trained, const at::Tensor& outputs) {
      torch::optim::SGD optimizer(trained.parameters(), 0.1);
      optimizer.zero_grad();
      at::mse_loss(outputs, at::zeros_like(outputs)).backward();
      optimizer.step();
    };
    for (int i = 0; i < 3; ++i) {
      const at::Tensor x =
          InputOf(16, 18, i, devices()[0]).view({16, 2, 3, 3}) + i;
      step(*net, ValueOf(parallel->Forward(x)));
      step(*alone, alone->forward(x));
      ExpectModule(*net, *alone, is_alone(), "step " + std::to_string(i));
      EXPECT_TRUE(net->conv->weight.grad().is_contiguous(layout));
    }
  }
}

struct MixedNet : torch::nn::Cloneable<MixedNet> {
  MixedNet() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(5, 7));
    second = register_module("second", torch::nn::Linear(7, 3));
    second->to(at::kFloat);
    first->to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(first(x).to(at::kFloat));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

// test_strided_grad_layout's parameters of several dtypes
TEST_P(TorchModulesTest, SeveralDtypes) {
  const auto net = std::make_shared<MixedNet>();
  FillModule(*net);
  net->to(devices()[0]);
  const auto alone = CopyOf(net);
  const auto parallel = Wrapped(net, devices());
  const at::Tensor x = InputOf(8, 5, 0, devices()[0]);
  ValueOf(parallel->Forward(x)).square().mean().backward();
  alone->forward(x).square().mean().backward();
  const auto expected = alone->named_parameters();
  for (const auto& each : net->named_parameters()) {
    EXPECT_EQ(each->grad().scalar_type(), each->scalar_type());
    EXPECT_TRUE(each->grad().cpu().allclose(expected[each.key()].grad().cpu(),
                                            1e-5, 1e-6))
        << each.key();
  }
}

struct ListNet : torch::nn::Cloneable<ListNet> {
  ListNet() { reset(); }
  void reset() override {
    list = register_module("list", torch::nn::ParameterList());
    for (int i = 0; i < 2; ++i) {
      list->append(at::ones({3}, at::kDouble).requires_grad_(true));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    for (const auto& each : list->named_parameters()) {
      EXPECT_TRUE(each->requires_grad()) << each.key();
    }
    return x * (*list)[0] + (*list)[1];
  }
  torch::nn::ParameterList list{nullptr};
};

// test_parameter_list_dict_replica. LibTorch's ParameterList has no clone().
TEST_P(TorchModulesTest, ParameterLists) {
  const auto net = std::make_shared<ListNet>();
  net->to(devices()[0]);
  const at::Tensor x = InputOf(8, 3, 0, devices()[0]);
  const auto parallel = ValueOf(MakeDataParallel(
      net, options(),
      [](c10::Device) -> absl::StatusOr<std::shared_ptr<ListNet>> {
        return std::make_shared<ListNet>();
      }));
  ValueOf(parallel->Forward(x)).sum().backward();
  ExpectClose((*net->list)[0].grad(), x.sum(0), "the first");
  ExpectClose((*net->list)[1].grad(), at::full({3}, 8., at::kDouble), "second");
}

// A loss of each replica's: a vector.
struct LossNet : torch::nn::Cloneable<LossNet> {
  LossNet() { reset(); }
  void reset() override { l = register_module("l", torch::nn::Linear(4, 1)); }
  at::Tensor forward(const at::Tensor& x) { return l(x).square().sum(); }
  torch::nn::Linear l{nullptr};
};

TEST_P(TorchModulesTest, LossesOfReplicas) {
  const Pair<LossNet> pair(devices());
  const auto& [net, alone, parallel] = pair;
  const at::Tensor x = InputOf(8, 4, 0, devices()[0]);
  const at::Tensor losses = ValueOf(parallel->Forward(x));
  EXPECT_EQ(losses.dim(), is_alone() ? 0 : 1);
  losses.sum().backward();
  alone->forward(x).backward();
  ExpectModule(*net, *alone, is_alone(), "of the sum");
}

TANDEM_ON_ONE_TO_FOUR(TorchModulesTest);

}  // namespace
}  // namespace tandem::torch_modules_test
