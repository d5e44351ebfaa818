#include "core/checkpoint/stored_tensors.h"

#include "core/base/status_macros.h"

namespace tandem {

StoredTensors::StoredTensors(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    Add({MakeTensorInfo(name, tensor),
         [tensor = tensor]() -> absl::StatusOr<at::Tensor> { return tensor; },
         nullptr});
  }
}

absl::Status Verify(const StoredTensor& tensor) {
  return tensor.verify ? tensor.verify() : absl::OkStatus();
}

absl::Status ReadInto(const StoredTensor& tensor, const at::Tensor& target) {
  if (tensor.read_into && target.device().is_cpu() &&
      target.scalar_type() == tensor.info.dtype &&
      target.sizes() == tensor.info.sizes) {
    TANDEM_ASSIGN_OR_RETURN(const bool done, tensor.read_into(target));
    if (done) {
      // copy_ does the same: code that keeps something made of the tensor looks
      // at its version.
      target.unsafeGetTensorImpl()->bump_version();
      return absl::OkStatus();
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, tensor.read());
  target.copy_(values);
  return absl::OkStatus();
}

}  // namespace tandem
