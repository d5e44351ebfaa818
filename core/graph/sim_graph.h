// Graphs of simulated devices.

#ifndef TANDEM_CORE_GRAPH_SIM_GRAPH_H_
#define TANDEM_CORE_GRAPH_SIM_GRAPH_H_

#include <c10/core/Device.h>

#include <memory>

#include "core/graph/device_graph.h"

namespace tandem {

// Of an asynchronous one: its operators' calls, and collectives of simulated
// NCCL, on the same storages. All memory of a capture stays, where a GPU's pool
// uses it again.
std::unique_ptr<DeviceGraph> MakeSimGraph(c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_GRAPH_SIM_GRAPH_H_
