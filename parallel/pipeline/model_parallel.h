// Plain model parallelism: the parts of one model on several devices of one
// rank, one after the other. (PyTorch's tutorial "Single-Machine Model Parallel
// Best Practices", whose ToyModel this does without a device in the model.)
//
//   LayerList layers = MakeLayers(ToyMpModel(), seed);
//   TANDEM_ASSIGN_OR_RETURN(layers, SpreadOverDevices(layers, {2}, devices));
//   at::Tensor outputs = Forward(layers, inputs);  // on devices[1]
//
// DistributedDataParallel goes around it as around any model.

#ifndef TANDEM_PARALLEL_PIPELINE_MODEL_PARALLEL_H_
#define TANDEM_PARALLEL_PIPELINE_MODEL_PARALLEL_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "parallel/balance/cut.h"

namespace tandem {

// Moves the parameters and buffers of each part that `cuts` make to its device,
// and gives the list whose forward goes through all of them: the input is
// brought to the first device, further ones to those that read them,
// activations are copied from part to part (copy_channel.h), and the output
// stays on the last device, where the caller brings the targets and what the
// loss takes beside it (`loss_takes`, LossNames::outputs), which stays where it
// is made. Names and values of parameters stay. `layers` share their modules
// with the list that is returned, and must not be called any more.
//
// A layer makes its tensors on the device of what it is given, or registers
// them as parameters or buffers. What it throws says where: "... (in layer net2
// (part 2 of 2, on cuda:1))"; so does an output that lies elsewhere.
//
// InvalidArgument when the cuts do not fit the layers or the devices, or when
// layers of different parts share a parameter or a buffer: nothing was moved
// then. Else LibTorch's, ResourceExhausted for a part that does not fit, with
// the layer; some layers may have been moved.
absl::StatusOr<LayerList> SpreadOverDevices(
    LayerList layers, const Cuts& cuts, const std::vector<c10::Device>& devices,
    const std::vector<std::string>& loss_takes = {});

// Each layer's number of parameter elements, for CutsByParameters. What layers
// share counts for the first.
std::vector<int64_t> ParameterCounts(const LayerList& layers);
// The same of layers that are not made yet: each is made and dropped before the
// next one, so that the model may be larger than the host's memory.
std::vector<int64_t> ParameterCounts(const LayerSpecs& specs);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_MODEL_PARALLEL_H_
