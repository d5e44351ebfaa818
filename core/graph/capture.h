// Capture of a device's work into a device graph.

#ifndef TANDEM_CORE_GRAPH_CAPTURE_H_
#define TANDEM_CORE_GRAPH_CAPTURE_H_

#include <c10/core/Device.h>

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/graph/device_graph.h"

namespace tandem {

// Training steps that run before one is captured: in the first ones optimizers
// make their state, DDP its buckets, and libraries what they need.
constexpr int kStepsBeforeCapture = 3;

// What `work` gives the calling thread's current stream of the device: nothing
// has run then. An error is the work's, or of the capture
// (core/graph/device_graph.h).
absl::StatusOr<std::unique_ptr<DeviceGraph>> CaptureGraph(
    c10::Device device, absl::FunctionRef<absl::Status()> work);

}  // namespace tandem

#endif  // TANDEM_CORE_GRAPH_CAPTURE_H_
