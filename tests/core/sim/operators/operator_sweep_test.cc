// Operators on a simulated device give the CPU's bits: results, gradients and
// gradients of gradients, group by group. tests/core/sim/operators/README.md.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SequenceNumber.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "core/sim/testing.h"
#include "tests/core/sim/operators/operator_case.h"

namespace tandem {
namespace {

using torch::autograd::grad;

constexpr size_t kGroups = 31;
constexpr size_t kCases = 376;

std::vector<OperatorGroup> AllGroups() {
  std::vector<OperatorGroup> groups;
  for (const auto& some :
       {ElementwiseCases(), ReductionCases(), AlgebraCases(), ShapeCases(),
        LayerCases(), ModelCases(), MutationCases(), TrainingCases()}) {
    groups.insert(groups.end(), some.begin(), some.end());
  }
  return groups;
}

bool CanHaveGradient(const torch::Tensor& tensor) {
  return torch::isFloatingType(tensor.scalar_type()) ||
         torch::isComplexType(tensor.scalar_type());
}

// One with a graph; never a view of what the caller has.
torch::Tensor Leaf(const torch::Tensor& cpu, c10::Device device,
                   bool with_gradient) {
  torch::Tensor copy = cpu.clone().to(device);
  return copy.requires_grad_(with_gradient && CanHaveGradient(copy));
}

// Gradients for `outputs`, the same ones on every device.
Tensors SeedsOf(In outputs) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  Tensors seeds;
  for (const torch::Tensor& each : outputs) {
    seeds.push_back(Leaf(torch::randn(each.sizes(), generator,
                                      each.options().device(torch::kCPU)),
                         each.device(), true));
  }
  return seeds;
}

Tensors WithGraph(In tensors) {
  Tensors found;
  for (const torch::Tensor& each : tensors) {
    if (each.defined() && each.requires_grad()) found.push_back(each);
  }
  return found;
}

// Undefined where there is none.
Tensors GradientsOf(In outputs, In inputs, In seeds, bool with_graph) {
  if (outputs.empty() || inputs.empty()) return {};
  return grad(outputs, inputs, seeds, /*retain_graph=*/true, with_graph,
              /*allow_unused=*/true);
}

void Append(Tensors& all, const char* what, In added) {
  bool any = false;
  for (const torch::Tensor& each : added) any = any || each.defined();
  EXPECT_TRUE(any) << "has no " << what;
  all.insert(all.end(), added.begin(), added.end());
}

// Results, gradients and the inputs as they are afterwards, on `device`.
Tensors Run(const OperatorCase& each, c10::Device device) {
  torch::manual_seed(7);
  const bool with_gradients = each.gradients != Gradients::kNone;
  const torch::AutoGradMode mode(with_gradients);
  Tensors inputs;
  for (const torch::Tensor& input : each.inputs) {
    inputs.push_back(Leaf(input, device, with_gradients));
  }
  Tensors all;
  const Tensors outputs = each.run(inputs);
  Append(all, "results", outputs);
  if (with_gradients) {
    const bool twice = each.gradients == Gradients::kTwice;
    const Tensors from = WithGraph(outputs);
    Tensors sources = WithGraph(inputs);
    const Tensors seeds = SeedsOf(from);
    const Tensors first = GradientsOf(from, sources, seeds, twice);
    Append(all, "gradients", first);
    if (twice) {
      const Tensors again = WithGraph(first);
      sources.insert(sources.end(), seeds.begin(), seeds.end());
      Append(all, "second gradients",
             GradientsOf(again, sources, SeedsOf(again), false));
    }
  }
  all.insert(all.end(), inputs.begin(), inputs.end());
  return all;
}

// Equal in all that a tensor is but its device, to the bit.
std::string Difference(const torch::Tensor& sim, const torch::Tensor& cpu,
                       c10::Device device) {
  if (sim.defined() != cpu.defined()) return "one is undefined";
  if (!sim.defined()) return "";
  if (sim.device() != device) return "device " + sim.device().str();
  if (sim.scalar_type() != cpu.scalar_type()) return "dtype";
  if (sim.sizes() != cpu.sizes()) return "sizes";
  if (sim.strides() != cpu.strides()) return "strides";
  if (sim.is_conj() != cpu.is_conj() || sim.is_neg() != cpu.is_neg()) {
    return "conjugate";
  }
  const auto flat = [](const torch::Tensor& tensor) {
    return tensor.detach().cpu().resolve_conj().resolve_neg().clone(
        at::MemoryFormat::Contiguous);
  };
  const torch::Tensor a = flat(sim);
  const torch::Tensor b = flat(cpu);
  return a.numel() == 0 ||
                 std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0
             ? ""
             : "values, by at most " +
                   std::to_string((a.to(torch::kDouble) - b.to(torch::kDouble))
                                      .abs()
                                      .max()
                                      .item<double>());
}

void CheckOnce(const OperatorCase& each, c10::Device device) {
  const Tensors expected = Run(each, torch::kCPU);
  const Tensors found = Run(each, device);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string difference = Difference(found[i], expected[i], device);
    if (difference.empty()) continue;
    ADD_FAILURE() << "tensor " << i << ": " << difference;
  }
}

// In asynchronous mode an operator waits when it is called first and is queued
// from then on.
int Rounds() { return std::getenv("TANDEM_SIM_ASYNC") == nullptr ? 1 : 3; }

void Check(const OperatorCase& each, c10::Device device) {
  for (int round = 0; round < Rounds(); ++round) {
    SCOPED_TRACE(each.name + ", round " + std::to_string(round));
    try {
      CheckOnce(each, device);
    } catch (const c10::Error& error) {
      ADD_FAILURE() << error.what_without_backtrace();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

// Autograd adds gradients up in the order in which a thread has numbered the
// operators that they come from. Those of a gradient's own graph are made by
// the device's thread: here it begins far ahead, so that they are later ones,
// as on the CPU.
void NumberLater(c10::Device device) {
  torch::Tensor x = torch::ones({1}, device).requires_grad_();
  torch::Tensor y = x * 2;
  y.register_hook([](const torch::Tensor& gradient) {
    for (int i = 0; i < 1000000; ++i) at::sequence_number::get_and_increment();
    return gradient;
  });
  y.backward();
}

TEST(OperatorSweepTest, GivesTheCpusBits) {
  const c10::Device device = SimDevices(3)[2];
  NumberLater(device);
  size_t cases = 0;
  size_t once = 0;
  size_t twice = 0;
  const std::vector<OperatorGroup> groups = AllGroups();
  for (const OperatorGroup& group : groups) {
    SCOPED_TRACE(group.name());
    const size_t once_before = once;
    const size_t twice_before = twice;
    for (const OperatorCase& each : group.cases()) {
      Check(each, device);
      once += each.gradients != Gradients::kNone;
      twice += each.gradients == Gradients::kTwice;
    }
    std::cout << group.name() << ": " << group.cases().size() << " cases, "
              << once - once_before << " with gradients, "
              << twice - twice_before << " with second gradients\n";
    cases += group.cases().size();
  }
  std::cout << "all " << groups.size() << " groups: " << cases << " cases, "
            << once << " with gradients, " << twice
            << " with second gradients\n";
  EXPECT_EQ(groups.size(), kGroups);
  EXPECT_EQ(cases, kCases);
}

}  // namespace
}  // namespace tandem
