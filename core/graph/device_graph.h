// Device graph: a device's work, captured once and replayed as a whole, so that
// the host issues one thing instead of thousands (torch.cuda.CUDAGraph).

#ifndef TANDEM_CORE_GRAPH_DEVICE_GRAPH_H_
#define TANDEM_CORE_GRAPH_DEVICE_GRAPH_H_

#include "absl/status/status.h"

namespace tandem {

// What the host gives the calling thread's current stream of the device between
// Begin and End, and to streams that wait for it, is written down and does not
// run. A replay runs it on the current stream, on the same memory: what was a
// number on the host then is the same number in each replay. All streams that
// took part must be waited for by the current one before End.
//
// Between Begin and End the host cannot wait for the device, nor read what it
// computes; what it allocates belongs to the graph, which keeps it. Not the
// device's default stream. Who writes down in the meantime asks WorkIsCaptured
// (core/device/capture_mark.h). For one thread at a time.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  virtual absl::Status Begin() = 0;
  // FailedPrecondition, and nothing captured, for what no replay could run.
  virtual absl::Status End() = 0;
  // Instead of End, after an error of what was captured. No replay follows.
  virtual void Abandon() = 0;
  // After End. The host waits for nothing.
  virtual absl::Status Replay() = 0;

 protected:
  DeviceGraph() = default;
};

}  // namespace tandem

#endif  // TANDEM_CORE_GRAPH_DEVICE_GRAPH_H_
