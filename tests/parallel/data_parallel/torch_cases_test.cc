// PyTorch's own cases of DataParallel (1.13.1): test/distributed/
// test_data_parallel.py, and test/cpp/api/parallel.cpp: inputs, outputs and the
// caller's settings. Modules are in torch_modules_test; scatter, gather, errors
// and several forwards in the tests of these.

#include <ATen/Tensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/data_parallel.h"
#include "tests/parallel/data_parallel/fixture.h"

namespace tandem::torch_cases_test {
namespace {

using Tensors = std::vector<at::Tensor>;
using TensorDict = std::map<std::string, at::Tensor>;

class TorchCasesTest : public DataParallelTest {};

struct ProductNet : torch::nn::Cloneable<ProductNet> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& a, const at::Tensor& b, double number,
                     const std::optional<at::Tensor>& c) {
    return c.has_value() ? (a * b + *c) * number : (a * b) * number;
  }
};

// test_data_parallel_multiple_input; a module without parameters.
TEST_P(TorchCasesTest, SeveralInputs) {
  const auto net = std::make_shared<ProductNet>();
  const auto parallel = Wrapped(net, devices());
  const at::Tensor a =
      InputOf(5, 5, 0, devices()[0]).detach().requires_grad_(true);
  const at::Tensor b =
      InputOf(5, 5, 1, devices()[0]).detach().requires_grad_(true);
  for (const bool with : {false, true}) {
    std::optional<at::Tensor> c;
    if (with) c = InputOf(5, 5, 2, devices()[0]);
    for (const at::Tensor& each : {a, b}) each.mutable_grad().reset();
    const at::Tensor outputs = ValueOf(parallel->Forward(a, b, 0.7, c));
    ExpectClose(outputs, net->forward(a, b, 0.7, c), "outputs");
    outputs.sum().backward();
    ExpectClose(a.grad(), b.detach() * 0.7, "the first's gradient");
    ExpectClose(b.grad(), a.detach() * 0.7, "the second's gradient");
    ExpectClose(ValueOf(RunDataParallel(net, options(), a, b, 0.7, c)), outputs,
                "as a function");
  }
}

struct NestedNet : torch::nn::Cloneable<NestedNet> {
  void reset() override {}
  using Inner = std::tuple<at::Tensor, at::Tensor, Tensors>;
  using Outputs = std::tuple<at::Tensor, Inner, std::pair<TensorDict, Tensors>>;
  Outputs forward(const at::Tensor& x) {
    return {x,
            {x.sin(), x.cos(), {x.add(1)}},
            {{{"a", x}, {"b", x.sin()}}, {x.neg()}}};
  }
};

// test_data_parallel_nested_output
TEST_P(TorchCasesTest, NestedOutputs) {
  const auto net = std::make_shared<NestedNet>();
  const at::Tensor x = InputOf(7, 2, 0, devices()[0]);
  const auto found =
      FindTensors(ValueOf(Wrapped(net, devices())->Forward(x)), "");
  const auto expected = FindTensors(net->forward(x), "");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, expected[i].first);
    ExpectSameBits(found[i].second, expected[i].second, found[i].first);
  }
}

struct PickNet : torch::nn::Cloneable<PickNet> {
  void reset() override {}
  at::Tensor forward(const at::Tensor&,
                     const std::tuple<at::Tensor, at::Tensor>& two,
                     const at::Tensor&) {
    return std::get<0>(two);
  }
};

// test_data_parallel_nested_input
TEST_P(TorchCasesTest, NestedInputs) {
  const auto net = std::make_shared<PickNet>();
  const at::Tensor x = InputOf(20, 3, 0, devices()[0]);
  const at::Tensor outputs =
      ValueOf(Wrapped(net, devices())
                  ->Forward(x.cos(), std::make_tuple(x.sin(), x), x.sin()));
  ExpectSameBits(outputs, x.sin(), "outputs");
}

struct NamedNet : torch::nn::Cloneable<NamedNet> {
  NamedNet() { reset(); }
  void reset() override { l = register_module("l", torch::nn::Linear(4, 2)); }
  TensorDict forward(const TensorDict& inputs, const Tensors& unused) {
    EXPECT_TRUE(unused.empty());
    return {{"logits", l(inputs.at("data"))}, {"mask", inputs.at("mask")}};
  }
  torch::nn::Linear l{nullptr};
};

// test_data_parallel_module_kwargs_only and its empty list, dict and tuple
TEST_P(TorchCasesTest, KeywordInputsAndOutputs) {
  const auto net = NewNet<NamedNet>(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  const TensorDict inputs = {{"data", InputOf(10, 4, 0, devices()[0])},
                             {"mask", at::arange(10).to(devices()[0]).gt(4)}};
  const TensorDict found = ValueOf(parallel->Forward(inputs, Tensors()));
  ASSERT_EQ(found.size(), 2u);
  ExpectClose(found.at("logits"), net->l(inputs.at("data")), "logits");
  ExpectSameBits(found.at("mask"), inputs.at("mask"), "mask");
}

struct EyeNet : torch::nn::Cloneable<EyeNet> {
  explicit EyeNet(c10::Device net_device) : device(net_device) {}
  void reset() override {}
  at::Tensor forward() {
    return at::eye(2, 3, at::TensorOptions().device(device));
  }
  c10::Device device;
};

// test_data_parallel_module_zero_inputs
TEST_P(TorchCasesTest, NoInputs) {
  const auto net = std::make_shared<EyeNet>(devices()[0]);
  ExpectSameBits(ValueOf(Wrapped(net, devices())->Forward()), at::eye(2, 3),
                 "outputs");
  ExpectSameBits(ValueOf(RunDataParallel(net, options())), at::eye(2, 3),
                 "as a function");
}

struct ModeNet : torch::nn::Cloneable<ModeNet> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) {
    return at::full({x.size(0)}, at::GradMode::is_enabled() ? 1 : 0);
  }
};

// test_data_parallel_no_grad
TEST_P(TorchCasesTest, TheGradientModeIsTheCallers) {
  const auto net = std::make_shared<ModeNet>();
  const auto parallel = Wrapped(net, devices());
  const at::Tensor x = InputOf(8, 2, 0, devices()[0]);
  EXPECT_EQ(ValueOf(parallel->Forward(x)).sum().item<int64_t>(), 8);
  const at::NoGradGuard no_grad;
  EXPECT_EQ(ValueOf(parallel->Forward(x)).sum().item<int64_t>(), 0);
}

// test_parallel_apply_autocast, test_autocast
TEST_P(TorchCasesTest, AutocastIsTheCallers) {
  torch::nn::Linear net(8, 8);
  net->to(devices()[0]);
  const auto parallel = Wrapped(net, devices());
  const at::Tensor x = at::ones({8, 8}).to(devices()[0]);
  const c10::DeviceType type = devices()[0].type();
  const at::ScalarType usual = at::autocast::get_autocast_dtype(type);
  at::autocast::set_autocast_enabled(type, true);
  at::autocast::set_autocast_dtype(type, at::kBFloat16);
  const auto outputs = parallel->Forward(x);
  at::autocast::set_autocast_dtype(type, usual);
  at::autocast::set_autocast_enabled(type, false);
  at::autocast::clear_cache();
  EXPECT_EQ(ValueOf(outputs).scalar_type(), at::kBFloat16);
}

// test_data_parallel, test_data_parallel_device_args,
// DataParallelPlacesTheOutputOnTheRequestedDevice_MultiCUDA
TEST_P(TorchCasesTest, TheOutputDevice) {
  torch::nn::Linear net(4, 2);
  net->to(at::kDouble);
  net->to(devices()[0]);
  const at::Tensor x = InputOf(10, 4, 0, devices()[0]);
  for (const c10::Device to :
       {devices()[0], devices().back(), c10::Device(c10::kCPU)}) {
    DataParallelOptions changed_options = options();
    changed_options.output_device = to;
    net->zero_grad();
    const at::Tensor outputs =
        ValueOf(RunDataParallel(net, changed_options, x));
    EXPECT_TRUE(IsOn(outputs, to));
    ExpectClose(outputs, net(x), "outputs");
    outputs.sum().backward();
    ExpectClose(net->weight.grad(), x.sum(0).expand({2, 4}), "gradient");
  }
}

struct IndexNet : torch::nn::Cloneable<IndexNet> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) {
    return at::full({1}, static_cast<int64_t>(x.device().index()));
  }
};

// DataParallelUsesAllAvailableCUDADevices_CUDA; small batches use fewer.
TEST_P(TorchCasesTest, EveryDeviceHasItsPart) {
  if (devices()[0].is_cpu()) return;  // tensors have no number there
  const auto parallel = Wrapped(std::make_shared<IndexNet>(), devices());
  const auto indices = [&](int64_t samples) {
    const at::Tensor found = ValueOf(parallel->Forward(at::ones({samples, 3})));
    ExpectSameBits(found.cpu(), at::arange(found.numel()),
                   std::to_string(samples));
    return found.numel();
  };
  EXPECT_EQ(indices(2 * value()), value());
  EXPECT_EQ(indices(1), 1);
  EXPECT_EQ(indices(value()), value());
}

TANDEM_ON_ONE_TO_FOUR(TorchCasesTest);

}  // namespace
}  // namespace tandem::torch_cases_test
