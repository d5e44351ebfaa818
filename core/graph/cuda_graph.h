// CUDA's graphs: under --config=cuda alone.

#ifndef TANDEM_CORE_GRAPH_CUDA_GRAPH_H_
#define TANDEM_CORE_GRAPH_CUDA_GRAPH_H_

#include <c10/core/Device.h>

#include <memory>

#include "core/graph/device_graph.h"

namespace tandem {

// at::cuda::CUDAGraph, with a pool of memory of its own. Only the capturing
// thread is kept from what a capture forbids: others, which look after
// collectives and pinned memory, go on.
std::unique_ptr<DeviceGraph> MakeCudaGraph(c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_GRAPH_CUDA_GRAPH_H_
