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
at::Tensor DetachedLeaf(const at::Tensor& tensor);

LayerFlow DetachedLeaves(const LayerFlow& flow);
LayerFlow BroughtTo(const LayerFlow& flow, c10::Device device);

// Leaves behind what is not among `names`, of which all are there.
void KeepSkips(const std::vector<std::string>& names, LayerFlow& flow);

// Layer borders: between two layers a tensor, and the gradient that comes back
// for it, lie in memory in one way, whether a model is cut there or not.
//
// Bits depend on it: kernels add up in the order of memory. Behind a cut a
// tensor is the leaf of a graph of its own, whose gradient is summed by itself
// and gets the tensor's strides (AccumulateGrad's layout contract). Within a
// graph it may have any, and joins what comes for the same tensor elsewhere.

// The tensor, or a contiguous copy of one with gaps or overlaps in memory: what
// channels hand over.
at::Tensor Dense(const at::Tensor& tensor);

// Dense, and beginning on a 64-byte boundary, as memory of its own does.
at::Tensor Settled(const at::Tensor& tensor);

// Settled, with a node of its own in autograd's graph: the gradient is settled,
// too, in the same strides, before it goes further back. May be written to.
at::Tensor AcrossBorder(const at::Tensor& tensor);

// What `layer` has just given: the values, and the skips that it has left.
void CrossBorder(const Layer& layer, LayerFlow& flow);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LAYER_FLOW_H_
