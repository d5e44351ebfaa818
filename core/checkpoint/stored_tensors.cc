#include "core/checkpoint/stored_tensors.h"

namespace tandem {

StoredTensors::StoredTensors(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    Add({InfoOf(name, tensor),
         [tensor = tensor]() -> absl::StatusOr<at::Tensor> { return tensor; },
         nullptr});
  }
}

absl::Status Verify(const StoredTensor& tensor) {
  return tensor.verify ? tensor.verify() : absl::OkStatus();
}

}  // namespace tandem
