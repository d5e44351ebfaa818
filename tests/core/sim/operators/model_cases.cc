#include <ATen/autocast_mode.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include "tests/core/sim/operators/operator_case.h"

namespace tandem {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

OperatorGroup AttentionCases() {
  OperatorGroup group("attention");
  const Tensors qkv = {Normal({2, 3, 5, 8}), Normal({2, 3, 7, 8}),
                       Normal({2, 3, 7, 8})};
  const Tensors same = {qkv[1], qkv[2], Normal({2, 3, 7, 8})};
  Tensors masked = qkv;
  masked.push_back(Truths({5, 7}).logical_or(torch::arange(7) == 0));
  Tensors shifted = qkv;
  shifted.push_back(Normal({2, 1, 5, 7}));
  group.Gradient("plain", qkv, [](In x) {
    return at::scaled_dot_product_attention(x[0], x[1], x[2]);
  });
  group.Gradient("causal", same, [](In x) {
    return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, true);
  });
  group.Gradient("with a mask", masked, [](In x) {
    return at::scaled_dot_product_attention(x[0], x[1], x[2], x[3]);
  });
  group.Gradient("with a mask of numbers", shifted, [](In x) {
    return at::scaled_dot_product_attention(x[0], x[1], x[2], x[3].detach());
  });
  group.Gradient("with a mask that learns", shifted, [](In x) {
    return at::scaled_dot_product_attention(x[0], x[1], x[2], x[3]);
  });
  group.Gradient("with dropout", qkv, [](In x) {
    return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.3);
  });
  group.Gradient("in bfloat16", same, [](In x) {
    return at::scaled_dot_product_attention(x[0].to(torch::kBFloat16),
                                            x[1].to(torch::kBFloat16),
                                            x[2].to(torch::kBFloat16));
  });
  group.Forward("without gradients", same, [](In x) {
    return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, true);
  });
  group.Twice("written out", qkv, [](In x) {
    return at::softmax(x[0].matmul(x[1].transpose(2, 3)) / 3, -1).matmul(x[2]);
  });
  return group;
}

OperatorGroup LossCases() {
  OperatorGroup group("losses");
  const Tensor a = Normal({4, 6});
  const Tensor b = Normal({4, 6});
  const Tensor classes = Integers(6, {4});
  group.Twice("mse_loss", {a, b},
              [](In x) { return at::mse_loss(x[0], x[1]); });
  group.Twice("l1_loss", {a, b}, [](In x) { return at::l1_loss(x[0], x[1]); });
  group.Twice("smooth_l1_loss", {a, b},
              [](In x) { return at::smooth_l1_loss(x[0], x[1].detach()); });
  group.Twice("huber_loss", {a, b},
              [](In x) { return at::huber_loss(x[0], x[1].detach()); });
  group.Twice("cross_entropy_loss", {a, classes},
              [](In x) { return at::cross_entropy_loss(x[0], x[1]); });
  group.Twice("cross_entropy_loss, weighted and smoothed",
              {a, classes, Positive({6})}, [](In x) {
                return at::cross_entropy_loss(x[0], x[1], x[2].detach(), 1, 2,
                                              0.1);
              });
  group.Twice("cross_entropy_loss of probabilities", {a, Fraction({4, 6})},
              [](In x) { return at::cross_entropy_loss(x[0], x[1]); });
  group.Twice("nll_loss", {a, classes}, [](In x) {
    return at::nll_loss(at::log_softmax(x[0], 1), x[1], {}, 2);
  });
  group.Gradient(
      "nll_loss2d", {Normal({2, 5, 3, 4}), Integers(5, {2, 3, 4})},
      [](In x) { return at::nll_loss2d(at::log_softmax(x[0], 1), x[1]); });
  group.Twice("binary_cross_entropy", {Fraction({4, 6}), Fraction({4, 6})},
              [](In x) { return at::binary_cross_entropy(x[0], x[1]); });
  group.Twice(
      "binary_cross_entropy_with_logits", {a, Fraction({4, 6})},
      [](In x) { return at::binary_cross_entropy_with_logits(x[0], x[1]); });
  group.Twice("kl_div", {a, Fraction({4, 6})},
              [](In x) { return at::kl_div(x[0], x[1]); });
  group.Gradient("multi_margin_loss", {a, classes},
                 [](In x) { return at::multi_margin_loss(x[0], x[1]); });
  group.Twice("cosine_embedding_loss", {a, b, torch::tensor({1, -1, 1, -1})},
              [](In x) { return at::cosine_embedding_loss(x[0], x[1], x[2]); });
  group.Twice("triplet_margin_loss", {a, b, Normal({4, 6})},
              [](In x) { return at::triplet_margin_loss(x[0], x[1], x[2]); });
  group.Gradient(
      "ctc_loss", {Normal({9, 2, 5}), Integers(4, {2, 3}) + 1}, [](In x) {
        return at::ctc_loss(at::log_softmax(x[0], 2), x[1],
                            at::IntArrayRef{9, 8}, at::IntArrayRef{3, 2});
      });
  return group;
}

// A module made on the CPU and moved; what it gives for x, and the gradients of
// its parameters.
template <typename Module, typename F>
Tensors Train(Module module, In x, F forward) {
  torch::manual_seed(7);  // its parameters drew from the CPU's numbers
  module->to(x[0].device());
  Tensors all = AsList(forward(module));
  all[0].square().sum().backward({}, /*retain_graph=*/true);
  for (const Tensor& each : module->parameters()) all.push_back(each.grad());
  return all;
}

template <typename Module, typename Options>
void AddRecurrent(OperatorGroup& group, const std::string& name,
                  const Options& options) {
  group.Gradient(name, {Normal({5, 2, 4})}, [options](In x) {
    return Train(Module(options), x, [&](Module& module) {
      return std::get<0>(module->forward(x[0]));
    });
  });
}

OperatorGroup RecurrentCases() {
  OperatorGroup group("recurrent networks");
  AddRecurrent<nn::LSTM>(group, "LSTM", nn::LSTMOptions(4, 3));
  AddRecurrent<nn::LSTM>(group, "LSTM, two layers, dropout",
                         nn::LSTMOptions(4, 3).num_layers(2).dropout(0.4));
  AddRecurrent<nn::LSTM>(group, "LSTM, bidirectional",
                         nn::LSTMOptions(4, 3).bidirectional(true));
  AddRecurrent<nn::LSTM>(group, "LSTM, batch first, projected",
                         nn::LSTMOptions(4, 3).batch_first(true).proj_size(2));
  AddRecurrent<nn::GRU>(group, "GRU", nn::GRUOptions(4, 3));
  AddRecurrent<nn::GRU>(
      group, "GRU, two layers, bidirectional, dropout",
      nn::GRUOptions(4, 3).num_layers(2).bidirectional(true).dropout(0.4));
  AddRecurrent<nn::RNN>(group, "RNN, tanh", nn::RNNOptions(4, 3));
  AddRecurrent<nn::RNN>(
      group, "RNN, relu, two layers",
      nn::RNNOptions(4, 3).num_layers(2).nonlinearity(torch::kReLU));
  group.Gradient(
      "LSTM with states",
      {Normal({5, 2, 4}), Normal({1, 2, 3}), Normal({1, 2, 3})}, [](In x) {
        return Train(nn::LSTM(4, 3), x, [&](nn::LSTM& module) {
          const auto [y, states] =
              module->forward(x[0], std::make_tuple(x[1], x[2]));
          return Tensors{y, std::get<0>(states), std::get<1>(states)};
        });
      });
  group.Gradient("LSTM of packed sequences", {Normal({5, 2, 4})}, [](In x) {
    return Train(nn::LSTM(4, 3), x, [&](nn::LSTM& module) {
      const auto packed =
          nn::utils::rnn::pack_padded_sequence(x[0], torch::tensor({5, 3}));
      return std::get<0>(nn::utils::rnn::pad_packed_sequence(
          std::get<0>(module->forward_with_packed_input(packed))));
    });
  });
  group.Gradient("LSTM cell, GRU cell", {Normal({2, 4})}, [](In x) {
    nn::LSTMCell lstm(4, 3);
    nn::GRUCell gru(4, 3);
    lstm->to(x[0].device());
    gru->to(x[0].device());
    return Tensors{std::get<1>(lstm->forward(x[0])), gru->forward(x[0])};
  });
  return group;
}

OperatorGroup TransformerCases() {
  OperatorGroup group("transformer modules");
  group.Gradient("TransformerEncoderLayer", {Normal({5, 2, 8})}, [](In x) {
    return Train(nn::TransformerEncoderLayer(8, 2), x,
                 [&](nn::TransformerEncoderLayer& module) {
                   return module->forward(x[0]);
                 });
  });
  group.Gradient(
      "TransformerEncoderLayer, gelu, masked", {Normal({5, 2, 8})}, [](In x) {
        const Tensor mask =
            torch::full({5, 5}, -1e9, x[0].options().requires_grad(false))
                .triu(1);
        return Train(
            nn::TransformerEncoderLayer(
                nn::TransformerEncoderLayerOptions(8, 2).dropout(0).activation(
                    torch::kGELU)),
            x, [&](nn::TransformerEncoderLayer& module) {
              return module->forward(x[0], mask);
            });
      });
  group.Gradient("TransformerDecoderLayer",
                 {Normal({5, 2, 8}), Normal({7, 2, 8})}, [](In x) {
                   return Train(nn::TransformerDecoderLayer(8, 2), x,
                                [&](nn::TransformerDecoderLayer& module) {
                                  return module->forward(x[0], x[1]);
                                });
                 });
  group.Gradient("MultiheadAttention", {Normal({5, 2, 8})}, [](In x) {
    return Train(nn::MultiheadAttention(8, 2), x,
                 [&](nn::MultiheadAttention& module) {
                   return module->forward(x[0], x[0], x[0]);
                 });
  });
  return group;
}

}  // namespace

std::vector<OperatorGroup> ModelCases() {
  return {AttentionCases(), LossCases(), RecurrentCases(), TransformerCases()};
}

}  // namespace tandem
