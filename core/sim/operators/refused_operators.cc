// Kinds of tensors that simulated devices do not have: what would make one or
// take one says so.

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <memory>

#include "core/sim/operators/libraries.h"
#include "core/sim/operators/register_operators.h"

namespace tandem {
namespace sim {
namespace {

using c10::DispatchKey;

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

}  // namespace

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

}  // namespace sim
}  // namespace tandem
