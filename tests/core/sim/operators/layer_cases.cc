#include <ATen/ATen.h>

#include "tests/core/sim/operators/operator_case.h"

namespace tandem {
namespace {

using at::Tensor;

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

}  // namespace

std::vector<OperatorGroup> LayerCases() {
  return {ConvolutionCases(), PoolingCases(), NormalisationCases(),
          ActivationCases(), EmbeddingCases()};
}

}  // namespace tandem
