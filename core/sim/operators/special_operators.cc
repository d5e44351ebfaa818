// Operators that running a CPU kernel on the same memory would get wrong.

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

#include "core/sim/calls/call_aliases.h"
#include "core/sim/operators/libraries.h"
#include "core/sim/operators/register_operators.h"

namespace tandem {
namespace sim {
namespace {

using c10::DispatchKey;

c10::Allocator* Allocator() {
  return c10::GetAllocator(c10::DeviceType::PrivateUse1);
}

// Made here, not by a CPU kernel: it is what every other operator begins with.
at::Tensor Empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device,
                 std::optional<bool> /*pin_memory*/,
                 std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout.value_or(c10::Layout::Strided) == c10::Layout::Strided,
      "simulated devices have dense tensors alone, not ", *layout);
  const c10::DeviceGuard guard(
      device.value_or(c10::Device(c10::DeviceType::PrivateUse1)));
  return at::detail::empty_generic(
      sizes, Allocator(), c10::DispatchKeySet(DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                        std::optional<c10::ScalarType> dtype,
                        std::optional<c10::Layout> /*layout*/,
                        std::optional<c10::Device> device,
                        std::optional<bool> /*pin_memory*/) {
  const c10::DeviceGuard guard(
      device.value_or(c10::Device(c10::DeviceType::PrivateUse1)));
  return at::detail::empty_strided_generic(
      sizes, strides, Allocator(),
      c10::DispatchKeySet(DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

// torch::nn::Module::to gives a parameter the data of a tensor on the device,
// which LibTorch allows between the devices that it knows.
bool HasCompatibleShallowCopyType(const at::Tensor& self,
                                  const at::Tensor& from) {
  return self.layout() == c10::Layout::Strided &&
         from.layout() == c10::Layout::Strided;
}

// As on the CPU, from the device's generator: for a device that it does not
// know LibTorch takes native_dropout, which draws from the CPU's.
at::Tensor Dropout(const at::Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1,
              "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.sym_numel() == 0) return input;
  if (p == 1) return input.mul(at::zeros({}, input.options()));
  at::Tensor noise = at::empty_like(input);
  noise.bernoulli_(1 - p).div_(1 - p);
  return input * noise;
}

// Which attention the CPU would take.
int64_t ChooseAttention(const at::Tensor& query, const at::Tensor& key,
                        const at::Tensor& value,
                        const std::optional<at::Tensor>& mask, double dropout,
                        bool is_causal, std::optional<double> scale,
                        bool enable_gqa) {
  const auto alias = [](const at::Tensor& tensor) {
    return HostAlias(tensor).set_requires_grad(tensor.requires_grad());
  };
  std::optional<at::Tensor> host_mask;
  if (mask.has_value() && mask->defined()) {
    host_mask = mask->device().is_cpu() ? *mask : alias(*mask);
  }
  return at::_fused_sdp_choice(alias(query), alias(key), alias(value),
                               host_mask, dropout, is_causal, scale,
                               enable_gqa);
}

}  // namespace

void RegisterSpecialOperators() {
  torch::Library& kernels = NewLibrary("aten", DispatchKey::PrivateUse1);
  kernels.impl("empty.memory_format", &Empty);
  kernels.impl("empty_strided", &EmptyStrided);
  kernels.impl("_has_compatible_shallow_copy_type",
               &HasCompatibleShallowCopyType);
  kernels.impl("dropout", &Dropout);
  torch::Library& with_gradients =
      NewLibrary("aten", DispatchKey::AutogradPrivateUse1);
  with_gradients.impl("dropout", &Dropout);
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(
      &ChooseAttention);
}

}  // namespace sim
}  // namespace tandem
