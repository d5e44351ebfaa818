// Axis group over a communicator: the collectives of layers that ranks share
// (tensor parallelism), by whatever carries the group's tensors.

#ifndef TANDEM_PARALLEL_TENSOR_PARALLEL_AXIS_COMMUNICATOR_H_
#define TANDEM_PARALLEL_TENSOR_PARALLEL_AXIS_COMMUNICATOR_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "core/comm/communicator.h"
#include "core/model/axis/axis_group.h"

namespace tandem {

// The ranks of `group`, by their numbers in it, along this axis of the mesh
// ("tensor"). `group` must outlive this, every layer that is made with it, and
// every graph; nothing else uses it. One for each thread that runs layers
// (stages of a pipeline on several devices of a rank), for a communicator takes
// collectives from one thread at a time.
//
// A collective's `what` is its purpose in the flight record, too, which keeps
// the texts. Errors are thrown as c10::DistError, with the communicator's
// words, which say what was to be sent; where streams carry the tensors, by a
// later call, or by Communicator::Synchronize(). Fault point:
// "tensor_parallel".
std::shared_ptr<AxisGroup> MakeAxisGroup(const std::string& axis,
                                         Communicator& group);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_TENSOR_PARALLEL_AXIS_COMMUNICATOR_H_
