#include "tests/parallel/ddp/fixture.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/optim/flat_buffer.h"
#include "tests/models/formula_values.h"

namespace tandem {

void DdpTest::OnRanks(int n,
                      const std::function<absl::Status(Communicator&)>& body) {
  // Gloo writes to sockets whose other end a failing rank may have closed.
  std::signal(SIGPIPE, SIG_IGN);
  CommunicatorOptions options;
  options.backend = value();
  options.timeout = std::chrono::seconds(30);
  ExpectOk(RunThreadRanks(
      n, body, [&] { return WithTestDevice(options, 2); }, options.timeout));
}

std::vector<std::string> DdpBackends() {
  if (std::getenv("TANDEM_TEST_BACKEND") != nullptr) return {TestBackend()};
  return {"gloo", "shm"};
}

std::vector<std::string> NamesIn(const FlatBufferList& buffers) {
  std::vector<std::string> names;
  for (const FlatBuffer* buffer : buffers) {
    for (const FlatSlot& slot : buffer->slots()) names.push_back(slot.name);
  }
  return names;
}

std::vector<std::string> NamesIn(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& each : tensors) names.push_back(each.first);
  return names;
}

TwoLinear::TwoLinear()
    : a(register_module(
          "a", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)))),
      b(register_module(
          "b", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)))) {
}

at::Tensor TwoLinear::forward(at::Tensor x, bool use_a, bool use_b) {
  if (use_a) x = a(x).tanh();
  if (use_b) x = b(x).tanh();
  return x;
}

void FillModule(torch::nn::Module& module) {
  at::NoGradGuard no_grad;
  for (auto& parameter : module.named_parameters()) {
    if (parameter->numel() == 0) continue;
    at::Tensor values = at::empty(parameter->sizes());
    FillByFormula(parameter.key(), values);
    parameter.value().copy_(values);
  }
}

at::Tensor ExampleInput(int step, const Communicator& world) {
  at::Tensor input = at::empty({2, 4});
  FillByFormula(absl::StrCat("input.", step, ".", world.rank()), input);
  return input.to(TestDevice());
}

absl::Status ExpectMeanGradients(const torch::nn::Module& module,
                                 const torch::nn::Module& alone,
                                 Communicator& world) {
  const auto expected = alone.named_parameters();
  for (const auto& parameter : module.named_parameters()) {
    const std::string where =
        absl::StrCat(parameter.key(), " on rank ", world.rank());
    const at::Tensor own = expected[parameter.key()].grad();
    const at::Tensor uses = at::full({}, own.defined() ? 1. : 0.);
    TANDEM_RETURN_IF_ERROR(world.AllReduceSum(uses));
    const at::Tensor& gradient = parameter->grad();
    EXPECT_EQ(gradient.defined(), uses.item<double>() > 0) << where;
    if (uses.item<double>() == 0) continue;
    at::Tensor mean = own.defined() ? own.div(world.size())
                                    : at::zeros_like(parameter->detach());
    mean = mean.contiguous();
    TANDEM_RETURN_IF_ERROR(world.AllReduceSum(mean));
    if (!gradient.defined()) continue;
    EXPECT_TRUE(at::allclose(gradient, mean, /*rtol=*/1e-5, /*atol=*/1e-6))
        << where << ":\n"
        << gradient << "\nexpected\n"
        << mean;
  }
  return absl::OkStatus();
}

}  // namespace tandem
