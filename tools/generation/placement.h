// Device and dtype in which a trained model computes, as a user names them.

#ifndef TANDEM_TOOLS_GENERATION_PLACEMENT_H_
#define TANDEM_TOOLS_GENERATION_PLACEMENT_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/layer.h"

namespace tandem {

struct ModelPlacement {
  c10::Device device = c10::Device(c10::kCPU);
  c10::ScalarType dtype = c10::ScalarType::Float;
};

// --device as train has it (cpu, cuda, sim), of which the first is made the
// calling thread's current one, and --dtype: fp32, bf16, fp16 or fp64. Before
// any tensor is made. InvalidArgument for another name; DevicesOf's errors.
absl::StatusOr<ModelPlacement> PlacementOf(const std::string& device,
                                           const std::string& dtype);

// Floating-point parameters and buffers take the dtype (transformers'
// torch_dtype: products and what is between them are of it, too), and all go to
// the device.
absl::Status Place(const ModelPlacement& placement, const LayerList& layers);

}  // namespace tandem

#endif  // TANDEM_TOOLS_GENERATION_PLACEMENT_H_
