// Module tensors: the parameters and buffers of a module, by name.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_MODULE_TENSORS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_MODULE_TENSORS_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "core/base/named_tensors.h"

namespace tandem {

// Of a module, or of a replica.
struct ModuleTensors {
  NamedTensors parameters;
  NamedTensors buffers;
};

// InvalidArgument, naming the tensor, for one that does not lie on `device`.
absl::Status CheckOnDevice(const ModuleTensors& module, c10::Device device);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_MODULE_TENSORS_H_
