// Placement of a list of layers on a device (torch's Module::to).

#ifndef TANDEM_CORE_MODEL_MOVE_LAYERS_H_
#define TANDEM_CORE_MODEL_MOVE_LAYERS_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "core/model/layer.h"

namespace tandem {

// Parameters and buffers go to `device`, where they count as parameters' memory
// (core/device/memory_category.h). An error names the layer; those before it
// have been moved. LayerList is core/model/layer.h's.
absl::Status MoveLayers(const LayerList& layers, c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_MOVE_LAYERS_H_
