// What simulated devices do not have is refused with a text that names it, and
// the process goes on. tests/core/sim/operators/README.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>

#include <functional>
#include <string>
#include <vector>

#include "core/sim/testing.h"
#include "tests/core/testing/thrown.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using torch::Tensor;

struct Refused {
  std::string name;
  std::string text;  // in the error's
  std::function<void(const Tensor& sim, const Tensor& cpu)> work;
};

std::string None(const std::string& kind, const std::string& op) {
  return "simulated devices have dense tensors alone, not " + kind + " ones (" +
         op + "); use the CPU for it";
}

std::string NoKernel(const std::string& op) {
  return "simulated devices run CPU kernels, and " + op +
         " has none; move its inputs to the CPU";
}

// The error's text on 4 x 4 tensors; "" if there is none.
std::string ErrorOf(const Refused& refused) {
  const c10::Device device = SimDevices(1)[0];
  const Tensor cpu = torch::randn({4, 4});
  const Tensor sim = cpu.to(device);
  return Thrown([&] { refused.work(sim, cpu); });
}

void ExpectRefused(const std::vector<Refused>& all) {
  for (const Refused& each : all) {
    SCOPED_TRACE(each.name);
    EXPECT_THAT(ErrorOf(each), HasSubstr(each.text));
  }
  const Tensor a = torch::ones({2}, SimDevices(1)[0]);
  EXPECT_EQ((a + a).sum().item<float>(), 4) << "afterwards";
}

torch::TensorOptions Layout(const Tensor& sim, c10::Layout layout) {
  return sim.options().layout(layout);
}

TEST(UnsupportedTest, SparseTensors) {
  constexpr const char* kMake =
      "aten::_sparse_coo_tensor_with_dims_and_tensors";
  constexpr const char* kMakeCsr = "aten::_sparse_compressed_tensor_unsafe";
  ExpectRefused({
      {"to_sparse", "dense tensors alone, not SparseCPUFloatType",
       [](auto& sim, auto&) { sim.to_sparse(); }},
      {"to_sparse_csr", "dense tensors alone, not SparseCsrCPUFloatType",
       [](auto& sim, auto&) { sim.to_sparse_csr(); }},
      {"to of a sparse one", None("sparse", kMake),
       [](auto& sim, auto& cpu) { cpu.to_sparse().to(sim.device()); }},
      {"to of a CSR one", None("sparse", kMakeCsr),
       [](auto& sim, auto& cpu) { cpu.to_sparse_csr().to(sim.device()); }},
      {"sparse_coo_tensor", None("sparse", kMake),
       [](auto& sim, auto&) {
         torch::sparse_coo_tensor(torch::zeros({2, 4}, torch::kLong).to(sim),
                                  sim[0], {3, 3});
       }},
      {"sparse_csr_tensor", None("sparse", kMakeCsr),
       [](auto& sim, auto&) {
         const auto count = torch::tensor({0, 2, 4}).to(sim.device());
         const auto where = torch::tensor({0, 1, 0, 1}).to(sim.device());
         torch::sparse_csr_tensor(count, where, sim[0], {2, 2},
                                  Layout(sim, torch::kSparseCsr));
       }},
      {"zeros", None("sparse", "aten::empty"),
       [](auto& sim, auto&) {
         torch::zeros({3}, Layout(sim, torch::kSparse));
       }},
      {"mm with one of the CPU", None("sparse", "aten::mm"),
       [](auto& sim, auto& cpu) { torch::mm(cpu.to_sparse(), sim); }},
      {"gradient of embedding", None("sparse", kMake),
       [](auto& sim, auto&) {
         const Tensor table = sim.clone().requires_grad_();
         const Tensor which = torch::tensor({1, 2}).to(sim.device());
         torch::embedding(table, which, -1, false, /*sparse=*/true)
             .sum()
             .backward();
       }},
      {"gradient of gather", None("sparse", kMake),
       [](auto& sim, auto&) {
         const Tensor from = sim.clone().requires_grad_();
         const Tensor which =
             torch::zeros({2, 2}, torch::kLong).to(sim.device());
         from.gather(0, which, /*sparse_grad=*/true).sum().backward();
       }},
  });
}

TEST(UnsupportedTest, QuantizedTensors) {
  ExpectRefused({
      {"quantize_per_tensor", "dense tensors alone, not QuantizedCPUQInt8Type",
       [](auto& sim, auto&) {
         torch::quantize_per_tensor(sim, 0.1, 0, torch::kQInt8);
       }},
      {"to of a quantized one", None("quantized", "aten::empty_quantized"),
       [](auto& sim, auto& cpu) {
         torch::quantize_per_tensor(cpu, 0.1, 0, torch::kQInt8)
             .to(sim.device());
       }},
      {"empty", None("quantized", "aten::empty"),
       [](auto& sim, auto&) {
         torch::empty({3}, sim.options().dtype(torch::kQInt8));
       }},
  });
}

TEST(UnsupportedTest, OtherLayouts) {
  ExpectRefused({
      {"nested", None("nested", "aten::_nested_tensor_from_tensor_list"),
       [](auto& sim, auto&) {
         at::_nested_tensor_from_tensor_list({sim, sim});
       }},
      {"to of a nested one", None("nested", "aten::_to_copy"),
       [](auto& sim, auto& cpu) {
         at::_nested_tensor_from_tensor_list({cpu, cpu}).to(sim.device());
       }},
      {"jagged", "dense tensors alone, not Jagged",
       [](auto& sim, auto&) {
         torch::empty({3}, Layout(sim, torch::kJagged));
       }},
      {"to_mkldnn", "dense tensors alone, not MkldnnCPUFloatType",
       [](auto& sim, auto&) { sim.to_mkldnn(); }},
      {"to of an mkldnn one", "mkldnn layout: sim",
       [](auto& sim, auto& cpu) { cpu.to_mkldnn().to(sim.device()); }},
  });
}

TEST(UnsupportedTest, OperatorsWithoutACpuKernel) {
  ExpectRefused({
      {"cudnn", NoKernel("aten::cudnn_convolution"),
       [](auto& sim, auto&) {
         const Tensor x = sim.view({1, 1, 4, 4});
         at::cudnn_convolution(x, x, {0, 0}, {1, 1}, {1, 1}, 1, false, false,
                               false);
       }},
      {"flash attention, called by its name",
       NoKernel("aten::_scaled_dot_product_flash_attention"),
       [](auto& sim, auto&) {
         const Tensor x = sim.view({1, 1, 4, 4});
         at::_scaled_dot_product_flash_attention(x, x, x);
       }},
  });
}

TEST(UnsupportedTest, GradientsOfARecurrentNetworksGradients) {
  ExpectRefused(
      {{"LSTM", "no gradients of a recurrent network's gradients",
        [](auto& sim, auto&) {
          torch::nn::LSTM lstm(4, 3);
          lstm->to(sim.device());
          const Tensor x = sim.view({2, 2, 4}).clone().requires_grad_();
          const Tensor y = std::get<0>(lstm->forward(x)).sum();
          const auto first =
              torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true,
                                    /*create_graph=*/true);
          first[0].square().sum().backward();
        }}});
}

TEST(UnsupportedTest, WhatIsNotOfThisDevice) {
  ExpectRefused({
      {"memory of the host", "the pointer is not of a simulated device",
       [](auto& sim, auto& cpu) {
         torch::from_blob(cpu.data_ptr(), {4}, sim.options());
       }},
      {"a generator of the CPU", "Expected a 'sim' device type for generator",
       [](auto& sim, auto&) {
         torch::randn({2}, at::detail::createCPUGenerator(), sim.options());
       }},
  });
}

}  // namespace
}  // namespace tandem
