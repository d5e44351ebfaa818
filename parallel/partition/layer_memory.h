// Layer memory: the bytes of a model's layers.

#ifndef TANDEM_PARALLEL_PARTITION_LAYER_MEMORY_H_
#define TANDEM_PARALLEL_PARTITION_LAYER_MEMORY_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "core/memory/state_bytes.h"
#include "core/model/layer.h"
#include "core/model/layer_flow.h"
#include "parallel/partition/balance.h"

namespace tandem {

// Where the layers' tensors are; the CPU for layers without any.
c10::Device ParametersDevice(const LayerList& layers);

// Fills in parameter_bytes, state_bytes, shared_state and what is gathered of
// `profile`, which has a layer for each of `layers`, with the low-precision
// copies that there are of their parameters.
void CountState(const LayerList& layers, const StatePerParameter& kept,
                ModelProfile& profile);

// Fills in activation_bytes: runs one forward through all layers, in autocast's
// present scope. Errors name the layer.
absl::Status MeasureActivations(const LayerList& layers, const LayerFlow& entry,
                                ModelProfile& profile);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_LAYER_MEMORY_H_
