// Layer flow: what is on its way between two layers of a model that is run
// layer by layer.

#ifndef TANDEM_CORE_MODEL_LAYER_FLOW_H_
#define TANDEM_CORE_MODEL_LAYER_FLOW_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/layer.h"

namespace tandem {

struct LayerFlow {
  at::Tensor values;
  Skips skips = {};  // and further inputs

  int64_t bytes() const;
};

// The tensor as a leaf of a graph of its own, as a stage takes its input. It
// takes a gradient if the tensor does: a batch's inputs do not, nor what is
// computed of them without trained weights.
at::Tensor LeafOf(const at::Tensor& tensor);

LayerFlow LeavesOf(const LayerFlow& flow);
LayerFlow BroughtTo(const LayerFlow& flow, c10::Device device);

// Leaves behind what is not among `names`, of which all are there.
void KeepSkips(const std::vector<std::string>& names, LayerFlow& flow);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LAYER_FLOW_H_
