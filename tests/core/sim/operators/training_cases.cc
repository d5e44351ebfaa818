#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <memory>

#include "tests/core/sim/operators/operator_case.h"

namespace tandem {
namespace {

using at::Tensor;
namespace optim = torch::optim;

// Parameters after five steps.
template <typename Optimizer, typename Options>
Tensors Optimise(In x, const Options& options) {
  const at::AutoGradMode with_graph(true);
  Tensors parameters;
  for (const Tensor& each : x) {
    parameters.push_back(each.detach().clone().requires_grad_());
  }
  Optimizer optimizer(parameters, options);
  const auto loss = [&] {
    optimizer.zero_grad();
    Tensor sum = (parameters[0].square() * parameters[1].sin()).sum();
    sum.backward();
    return sum;
  };
  for (int step = 0; step < 5; ++step) optimizer.step(loss);
  return parameters;
}

template <typename Optimizer, typename Options>
void AddOptimizer(OperatorGroup& group, const char* name,
                  const Options& options) {
  group.Forward(name, {Normal({4, 6}), Normal({6})},
                [options](In x) { return Optimise<Optimizer>(x, options); });
}

OperatorGroup OptimizerCases() {
  OperatorGroup group("optimizers");
  AddOptimizer<optim::SGD>(group, "SGD", optim::SGDOptions(0.1));
  AddOptimizer<optim::SGD>(
      group, "SGD, Nesterov momentum, weight decay",
      optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01));
  AddOptimizer<optim::Adam>(group, "Adam", optim::AdamOptions(0.1));
  AddOptimizer<optim::Adam>(group, "Adam, amsgrad",
                            optim::AdamOptions(0.1).amsgrad(true));
  AddOptimizer<optim::AdamW>(group, "AdamW", optim::AdamWOptions(0.1));
  AddOptimizer<optim::RMSprop>(
      group, "RMSprop",
      optim::RMSpropOptions(0.1).centered(true).momentum(0.5));
  AddOptimizer<optim::Adagrad>(group, "Adagrad", optim::AdagradOptions(0.1));
  AddOptimizer<optim::LBFGS>(group, "LBFGS", optim::LBFGSOptions(0.1));
  group.Forward("clip_grad_norm_", {Normal({4, 6}), Normal({6})}, [](In x) {
    for (const Tensor& each : x) each.mutable_grad() = each * 3;
    torch::nn::utils::clip_grad_norm_(x, 1.0);
    return Tensors{x[0].grad(), x[1].grad()};
  });
  const Tensors four = {Normal({9}), Normal({9}), Normal({9}), Positive({9})};
  group.Forward("fused Adam", four, [](In x) {
    at::_fused_adam_({x[0]}, {x[1]}, {x[2]}, {x[3]}, {},
                     {at::full({}, 2, x[0].options())}, 0.1, 0.9, 0.99, 0.01,
                     1e-8, false, false);
    return x[0];
  });
  group.Forward("fused AdamW", four, [](In x) {
    at::_fused_adamw_({x[0]}, {x[1]}, {x[2]}, {x[3]}, {},
                      {at::full({}, 2, x[0].options())}, 0.1, 0.9, 0.99, 0.01,
                      1e-8, false, false);
    return x[0];
  });
  group.Forward("fused SGD", four, [](In x) {
    at::_fused_sgd_({x[0]}, {x[1]}, {x[2]}, 0.01, 0.9, 0.1, 0, true, false,
                    false);
    return x[0];
  });
  return group;
}

// Under autocast to bfloat16, which is set up by device type.
class Autocast {
 public:
  explicit Autocast(at::DeviceType type)
      : type_(type), dtype_(at::autocast::get_autocast_dtype(type)) {
    at::autocast::set_autocast_enabled(type_, true);
    at::autocast::set_autocast_dtype(type_, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(type_, dtype_);
    at::autocast::set_autocast_enabled(type_, false);
  }

 private:
  const at::DeviceType type_;
  const at::ScalarType dtype_;
};

OperatorGroup AutocastCases() {
  OperatorGroup group("autocast to bfloat16");
  const Tensor a = Normal({5, 7});
  group.Gradient("mm, then relu", {a, Normal({7, 3})}, [](In x) {
    const Autocast autocast(x[0].device().type());
    return x[0].mm(x[1]).relu();
  });
  group.Gradient("linear", {a, Normal({3, 7}), Normal({3})}, [](In x) {
    const Autocast autocast(x[0].device().type());
    return at::linear(x[0], x[1], x[2]).relu();
  });
  group.Gradient("conv2d", {Normal({2, 3, 6, 6}), Normal({4, 3, 3, 3})},
                 [](In x) {
                   const Autocast autocast(x[0].device().type());
                   return at::conv2d(x[0], x[1]);
                 });
  group.Gradient("one weight twice", {a, Normal({7, 7})}, [](In x) {
    const Autocast autocast(x[0].device().type());
    return x[0].mm(x[1]).mm(x[1]);
  });
  group.Gradient("cat of dtypes", {a, a.to(at::kBFloat16)}, [](In x) {
    const Autocast autocast(x[0].device().type());
    return at::cat({x[0], x[1]});
  });
  // CUDA's list has it in float32, the CPU's does not have it.
  group.Gradient("softmax of mm", {a, Normal({7, 3})}, [](In x) {
    const Autocast autocast(x[0].device().type());
    const Tensor y = x[0].mm(x[1]);
    return x[0].is_cpu() ? y.to(at::kFloat).softmax(1) : y.softmax(1);
  });
  group.Gradient("mse_loss of mm", {a, Normal({7, 3})}, [](In x) {
    const Autocast autocast(x[0].device().type());
    const Tensor y = x[0].mm(x[1]);
    return at::mse_loss(y, at::zeros_like(y));
  });
  return group;
}

}  // namespace

std::vector<OperatorGroup> TrainingCases() {
  return {OptimizerCases(), AutocastCases()};
}

}  // namespace tandem
