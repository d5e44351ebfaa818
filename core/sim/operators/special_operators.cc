// Operators that simulated devices do not take from the CPU as they are: those
// that its kernel would get wrong on the same memory; those that autocast
// casts, as on CUDA; and those of tensors that there are none of.

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/stack.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

#include <memory>

#include "core/sim/calls/call_aliases.h"
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

// Dropout draws as on the CPU, but from the device's generator: for a device
// that it does not know LibTorch takes native_dropout, which draws from the
// CPU's.
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

// Kinds of tensors that there are none of: what would make one or take one says
// so.
class Refusal final : public c10::OperatorKernel {
 public:
  explicit Refusal(const char* kind) : kind_(kind) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* /*stack*/) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "simulated devices have dense tensors alone, not ", kind_,
        " ones (", op.schema().name(), "); use the CPU for it");
  }

 private:
  const char* const kind_;
};

torch::CppFunction NewRefusal(const char* kind) {
  return torch::CppFunction::makeFromBoxedFunctor(
      std::make_unique<Refusal>(kind));
}

// What autocast casts: CUDA's lists.
#define TANDEM_LOWER_PRECISION(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TANDEM_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TANDEM_SET_DTYPE(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TANDEM_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

void RegisterCasts(torch::Library& m) {
  using namespace at;  // LibTorch's lists name its types without one
  AT_FORALL_LOWER_PRECISION_FP(TANDEM_LOWER_PRECISION)
  AT_FORALL_FP32(TANDEM_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TANDEM_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(
      KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TANDEM_PROMOTE)
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

void RegisterRefusals() {
  const auto refuse = [](DispatchKey key, const char* kind) {
    NewLibrary("_", key).fallback(NewRefusal(kind));
  };
  refuse(DispatchKey::SparsePrivateUse1, "sparse");
  refuse(DispatchKey::SparseCsrPrivateUse1, "sparse");
  refuse(DispatchKey::QuantizedPrivateUse1, "quantized");
  refuse(DispatchKey::NestedTensorPrivateUse1, "nested");
  // These make such a tensor of dense ones, on any device.
  for (const DispatchKey key :
       {DispatchKey::PrivateUse1, DispatchKey::AutogradPrivateUse1,
        DispatchKey::SparseCsrPrivateUse1}) {
    torch::Library& library = NewLibrary("aten", key);
    library.impl("_sparse_compressed_tensor_unsafe", NewRefusal("sparse"));
    library.impl("_nested_tensor_from_tensor_list", NewRefusal("nested"));
    library.impl("_nested_view_from_buffer", NewRefusal("nested"));
  }
}

void RegisterAutocast() {
  constexpr DispatchKey kAutocast = DispatchKey::AutocastPrivateUse1;
  NewLibrary("_", kAutocast).fallback(torch::CppFunction::makeFallthrough());
  RegisterCasts(NewLibrary("aten", kAutocast));
}

}  // namespace sim
}  // namespace tandem
