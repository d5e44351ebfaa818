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

OperatorGroup ConvolutionCases() {
  OperatorGroup group("convolution");
  const Tensor image = Normal({2, 4, 8, 9});
  const Tensor weight = Normal({6, 4, 3, 3});
  const Tensor bias = Normal({6});
  group.Twice("conv1d", {Normal({2, 4, 9}), Normal({6, 4, 3}), bias},
              [](In x) { return at::conv1d(x[0], x[1], x[2], 2, 1); });
  group.Twice("conv2d", {image, weight, bias},
              [](In x) { return at::conv2d(x[0], x[1], x[2], 1, 1); });
  group.Twice("conv2d without bias", {image, weight},
              [](In x) { return at::conv2d(x[0], x[1], {}, 2); });
  group.Twice("conv2d, dilated", {image, weight, bias},
              [](In x) { return at::conv2d(x[0], x[1], x[2], 1, 2, 2); });
  group.Twice("conv2d, two groups", {image, Normal({6, 2, 3, 3}), bias},
              [](In x) { return at::conv2d(x[0], x[1], x[2], 1, 1, 1, 2); });
  group.Twice("conv2d, depthwise", {image, Normal({4, 1, 3, 3}), Normal({4})},
              [](In x) { return at::conv2d(x[0], x[1], x[2], 1, 1, 1, 4); });
  group.Gradient("conv2d, channels last", {image, weight, bias}, [](In x) {
    return at::conv2d(x[0].contiguous(at::MemoryFormat::ChannelsLast), x[1],
                      x[2]);
  });
  group.Gradient("conv2d, frozen weight", {image, weight, bias},
                 [](In x) { return at::conv2d(x[0], x[1].detach(), x[2]); });
  group.Twice("conv2d in double",
              {image.to(at::kDouble), weight.to(at::kDouble)},
              [](In x) { return at::conv2d(x[0], x[1]); });
  group.Twice("conv3d", {Normal({1, 2, 5, 5, 5}), Normal({3, 2, 3, 3, 3})},
              [](In x) { return at::conv3d(x[0], x[1]); });
  group.Twice(
      "conv_transpose2d", {image, Normal({4, 5, 3, 3}), Normal({5})},
      [](In x) { return at::conv_transpose2d(x[0], x[1], x[2], 2, 1, 1); });
  group.Twice("im2col, col2im", {image}, [](In x) {
    const Tensor columns = at::im2col(x[0], {3, 3}, {1, 1}, {0, 0}, {2, 2});
    return at::col2im(columns, {8, 9}, {3, 3}, {1, 1}, {0, 0}, {2, 2}).square();
  });
  return group;
}

OperatorGroup PoolingCases() {
  OperatorGroup group("pooling");
  const Tensor a = Normal({2, 3, 8, 9});
  group.Twice("max_pool1d", {Normal({2, 3, 9})},
              [](In x) { return at::max_pool1d(x[0].square(), 2); });
  group.Twice("max_pool2d", {a},
              [](In x) { return at::max_pool2d(x[0].square(), 3, 2, 1); });
  group.Gradient("max_pool2d_with_indices", {a}, [](In x) {
    return at::max_pool2d_with_indices(x[0], {2, 2});
  });
  group.Twice("max_pool3d", {Normal({1, 2, 4, 4, 4})},
              [](In x) { return at::max_pool3d(x[0].square(), 2); });
  group.Twice("avg_pool2d", {a},
              [](In x) { return at::avg_pool2d(x[0], 3, 2, 1).square(); });
  group.Twice("adaptive_avg_pool2d", {a}, [](In x) {
    return at::adaptive_avg_pool2d(x[0], {3, 4}).square();
  });
  group.Twice("adaptive_avg_pool2d to one", {a}, [](In x) {
    return at::adaptive_avg_pool2d(x[0], {1, 1}).square();
  });
  group.Gradient("adaptive_max_pool2d", {a}, [](In x) {
    return at::adaptive_max_pool2d(x[0], {3, 4});
  });
  group.Gradient("max_unpool2d", {a}, [](In x) {
    const auto [most, where] = at::max_pool2d_with_indices(x[0], {2, 2});
    return at::max_unpool2d(most, where, {8, 9});
  });
  return group;
}

OperatorGroup NormalisationCases() {
  OperatorGroup group("normalisation");
  const Tensor a = Normal({4, 6, 3, 5});
  const Tensor weight = Positive({6});
  const Tensor bias = Normal({6});
  group.Twice("batch_norm, training", {a, weight, bias}, [](In x) {
    Tensor mean = at::zeros({6}, x[1].options());
    Tensor variance = at::ones({6}, x[1].options());
    const Tensor y = at::batch_norm(x[0], x[1], x[2], mean, variance,
                                    /*training=*/true, 0.1, 1e-5, false);
    return Tensors{y, mean, variance};
  });
  group.Twice("batch_norm, evaluation", {a, weight, bias}, [](In x) {
    const Tensor zeros = at::zeros({6}, x[1].options());
    return at::batch_norm(x[0], x[1], x[2], zeros, zeros + 2, false, 0.1, 1e-5,
                          false);
  });
  group.Twice("layer_norm", {Normal({4, 5, 6}), weight, bias},
              [](In x) { return at::layer_norm(x[0], {6}, x[1], x[2]); });
  group.Twice("group_norm", {a, weight, bias},
              [](In x) { return at::group_norm(x[0], 3, x[1], x[2]); });
  group.Twice("instance_norm", {a, weight, bias}, [](In x) {
    return at::instance_norm(x[0], x[1], x[2], {}, {}, true, 0.1, 1e-5, false);
  });
  group.Twice("rms_norm", {Normal({4, 6}), weight},
              [](In x) { return at::rms_norm(x[0], {6}, x[1]); });
  group.Gradient("renorm", {Normal({4, 6})},
                 [](In x) { return x[0].renorm(2, 0, 1); });
  group.Twice("weight norm", {Normal({4, 6}), Positive({4, 1})},
              [](In x) { return at::_weight_norm(x[0], x[1], 0); });
  return group;
}

OperatorGroup ActivationCases() {
  OperatorGroup group("activations");
  using Activation = Tensor (*)(const Tensor&);
  const std::initializer_list<std::pair<const char*, Activation>> smooth = {
      {"gelu", [](const Tensor& x) { return at::gelu(x); }},
      {"gelu, tanh", [](const Tensor& x) { return at::gelu(x, "tanh"); }},
      {"silu", [](const Tensor& x) { return at::silu(x); }},
      {"mish", [](const Tensor& x) { return at::mish(x); }},
      {"elu", [](const Tensor& x) { return at::elu(x); }},
      {"selu", [](const Tensor& x) { return at::selu(x); }},
      {"celu", [](const Tensor& x) { return at::celu(x); }},
      {"softplus", [](const Tensor& x) { return at::softplus(x); }},
      {"log_sigmoid", [](const Tensor& x) { return at::log_sigmoid(x); }},
      {"leaky_relu", [](const Tensor& x) { return at::leaky_relu(x); }},
      {"hardtanh", [](const Tensor& x) { return at::hardtanh(x); }},
      {"hardswish", [](const Tensor& x) { return at::hardswish(x); }},
      {"softmax", [](const Tensor& x) { return at::softmax(x, 1); }},
      {"log_softmax", [](const Tensor& x) { return at::log_softmax(x, 0); }},
      {"glu", [](const Tensor& x) { return at::glu(x, 1); }},
      {"relu6", [](const Tensor& x) { return at::relu6(x); }}};
  for (const auto& [name, activation] : smooth) {
    group.Twice(name, {Normal({5, 8})},
                [call = activation](In x) { return call(x[0] * 3).square(); });
  }
  group.Gradient("hardsigmoid", {Normal({5, 8})},
                 [](In x) { return at::hardsigmoid(x[0]); });
  group.Twice("prelu", {Normal({5, 8}), Normal({8})},
              [](In x) { return at::prelu(x[0], x[1]); });
  return group;
}

OperatorGroup EmbeddingCases() {
  OperatorGroup group("embedding");
  const Tensor table = Normal({7, 4});
  group.Twice("embedding", {table, Integers(7, {3, 5})},
              [](In x) { return at::embedding(x[0], x[1]).square(); });
  group.Gradient("embedding with padding", {table, Integers(7, {3, 5})},
                 [](In x) { return at::embedding(x[0], x[1], 2); });
  for (const int64_t mode : {0, 1, 2}) {
    group.Gradient(
        "embedding_bag, mode " + std::to_string(mode),
        {table, Integers(7, {9}), at::tensor({0, 4, 4, 7})}, [mode](In x) {
          return std::get<0>(at::embedding_bag(x[0], x[1], x[2], false, mode));
        });
  }
  group.Forward("one_hot", {Integers(7, {3})},
                [](In x) { return at::one_hot(x[0], 7); });
  return group;
}

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

std::vector<OperatorGroup> LayerCases() {
  return {ConvolutionCases(), PoolingCases(), NormalisationCases(),
          ActivationCases(), EmbeddingCases()};
}

std::vector<OperatorGroup> TrainingCases() {
  return {OptimizerCases(), AutocastCases()};
}

}  // namespace tandem
