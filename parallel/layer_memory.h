// The bytes of a model's layers, for layer_profile.h.

#ifndef TANDEM_PARALLEL_LAYER_MEMORY_H_
#define TANDEM_PARALLEL_LAYER_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "core/layer.h"
#include "parallel/model_profile.h"

namespace tandem {

// Where the layers' tensors are; the CPU for layers without any.
c10::Device HomeOf(const LayerList& layers);

// The tensor as a leaf of a graph of its own, as a stage takes its input.
at::Tensor LeafOf(const at::Tensor& tensor);

// Fills in parameter_bytes, state_bytes and shared_state of `profile`, which
// has a layer for each of `layers`.
void CountState(const LayerList& layers, int optimizer_states,
                ModelProfile& profile);

// Fills in activation_bytes: runs one forward through all layers. Errors name
// the layer.
absl::Status MeasureActivations(const LayerList& layers,
                                const at::Tensor& input, ModelProfile& profile);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_LAYER_MEMORY_H_
