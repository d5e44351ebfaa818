// Options of DataParallel.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_OPTIONS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_OPTIONS_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// PyTorch's names.
struct DataParallelOptions {
  // Replica i's device; the module lies on the first. Devices other than the
  // CPU have numbers. The same device twice has two replicas. Empty: all
  // devices of the process's accelerator, or the CPU alone where there is none.
  std::vector<c10::Device> device_ids = {};
  // Where outputs are gathered; none: on the first device.
  std::optional<c10::Device> output_device = {};
  // Along which inputs are cut and outputs are joined.
  int64_t dim = 0;
  // Not PyTorch's. Whoever writes to a parameter counts it in the tensor's
  // version: in-place operations do, and tandem's optimizers, but not
  // LibTorch's SGD. Then accumulation of gradients copies nothing to the
  // replicas.
  bool counts_all_writes = false;
};

// The devices that options mean. InvalidArgument for a device without a number.
absl::StatusOr<std::vector<c10::Device>> DevicesOf(
    const DataParallelOptions& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_OPTIONS_H_
