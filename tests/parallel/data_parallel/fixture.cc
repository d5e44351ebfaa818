#include "tests/parallel/data_parallel/fixture.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include "absl/strings/str_cat.h"
#include "core/random/random.h"

namespace tandem {
namespace {

// Numbers between -1 and 1.
at::Tensor Values(at::IntArrayRef sizes, double phase) {
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  return at::arange(numel, at::kDouble).mul(0.7).add(phase).sin().view(sizes);
}

void Compare(const at::Tensor& found, const at::Tensor& expected,
             bool same_bits, const std::string& what) {
  ASSERT_EQ(found.defined(), expected.defined()) << what;
  if (!found.defined()) return;
  const at::Tensor a = found.detach().cpu(), b = expected.detach().cpu();
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  EXPECT_TRUE(same_bits ? a.equal(b) : a.allclose(b, 1e-12, 1e-12))
      << what << ": " << a << " instead of " << b;
}

}  // namespace

void TwiceNet::reset() {
  in = register_module("in", torch::nn::Linear(5, 5));
  out = register_module("out", torch::nn::Linear(5, 3));
  scale = register_parameter("scale", at::ones({5}));
}

at::Tensor TwiceNet::forward(const at::Tensor& x) {
  return out(in(in(x).tanh()).tanh() * scale);
}

void NormNet::reset() {
  in = register_module("in", torch::nn::Linear(4, 4));
  norm = register_module("norm", torch::nn::BatchNorm1d(4));
}

at::Tensor NormNet::forward(const at::Tensor& x) { return norm(in(x)); }

void FillModule(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  const auto fill = [](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.is_floating_point()) return;
    const double phase = static_cast<double>(SeedFor(0, name) % 1000);
    tensor.copy_(Values(tensor.sizes(), phase));
    if (name.find("running_var") != std::string::npos) tensor.square_().add_(1);
  };
  for (const auto& each : module.named_parameters()) fill(each.key(), *each);
  for (const auto& each : module.named_buffers()) fill(each.key(), *each);
}

at::Tensor InputOf(int64_t n, int64_t width, int seed, c10::Device device) {
  return Values({n, width}, 0.3 + 2.1 * seed).to(device);
}

void ExpectClose(const at::Tensor& found, const at::Tensor& expected,
                 const std::string& what) {
  Compare(found, expected, false, what);
}

void ExpectSameBits(const at::Tensor& found, const at::Tensor& expected,
                    const std::string& what) {
  Compare(found, expected, true, what);
}

void ExpectModule(const torch::nn::Module& found,
                  const torch::nn::Module& expected, bool same_bits,
                  const std::string& when) {
  const auto others = expected.named_parameters();
  for (const auto& each : found.named_parameters()) {
    const at::Tensor& other = others[each.key()];
    Compare(*each, other, same_bits, absl::StrCat(each.key(), " ", when));
    Compare(each->grad(), other.grad(), same_bits,
            absl::StrCat("gradient of ", each.key(), " ", when));
  }
  const auto buffers = expected.named_buffers();
  for (const auto& each : found.named_buffers()) {
    Compare(*each, buffers[each.key()], same_bits,
            absl::StrCat(each.key(), " ", when));
  }
}

}  // namespace tandem
