// Host copy of a state part: what is written behind while training goes on
// (CheckFreq's snapshot; the staging of PyTorch's async_save).

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_HOST_COPY_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_HOST_COPY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {

// Keeps its memory from one copy to the next: as much as the part has, in the
// host's memory, pinned for parts of GPUs. Not thread-safe.
class HostCopy {
 public:
  // Copies every tensor; devices have done when this returns. What the copy
  // before has given is overwritten. ResourceExhausted where there is no
  // memory.
  absl::StatusOr<StatePart> Take(const StatePart& part);

  // The size of what it keeps.
  uint64_t bytes() const;

 private:
  // For a part of these tensors.
  void MakeRoom(const StatePart& part);

  std::vector<TensorInfo> forms_;    // of the tensors that there is room for
  std::vector<at::Tensor> buffers_;  // in their order, of one block
};

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_HOST_COPY_H_
