// Which graphs a device has.

#ifndef TANDEM_CORE_GRAPH_MAKE_DEVICE_GRAPH_H_
#define TANDEM_CORE_GRAPH_MAKE_DEVICE_GRAPH_H_

#include <c10/core/Device.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/graph/device_graph.h"

namespace tandem {

// Over at::cuda::CUDAGraph in a build with --config=cuda, and over the streams
// of simulated devices, which refuse and bake in what CUDA does.
// FailedPrecondition for a device that has no graphs, with the reason.
absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeDeviceGraph(
    c10::Device device);
// The same reason, and nothing made.
absl::Status CheckHasGraphs(c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_GRAPH_MAKE_DEVICE_GRAPH_H_
