#include "core/comm/group_buffer.h"

#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "core/base/torch_status.h"

namespace tandem {

absl::StatusOr<at::Tensor> NewGroupBuffer(const Communicator& group,
                                          int64_t numel,
                                          const at::TensorOptions& options) {
  return CatchTorchOr([&] {
    const auto& connected = group.process_group();
    if (connected != nullptr && numel > 0 && options.device().is_cpu()) {
      const auto backend = connected->getBackend(c10::DeviceType::CPU);
      if (backend->supportsTensorAlloc(-1)) {
        return backend->allocateTensor(numel, options);
      }
    }
    return at::zeros({numel}, options);
  });
}

bool SharesMemory(const Communicator& group) {
  const auto& connected = group.process_group();
  if (connected == nullptr) return true;
  const auto backend = connected->getBackend(c10::DeviceType::CPU);
  return backend->supportsTensorAlloc(-1) && backend->getBackendName() == "shm";
}

}  // namespace tandem
