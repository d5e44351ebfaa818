#include "core/graph/capture.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/graph/make_device_graph.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<DeviceGraph>> CaptureGraph(
    c10::Device device, absl::FunctionRef<absl::Status()> work) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<DeviceGraph> graph,
                          MakeDeviceGraph(device));
  TANDEM_RETURN_IF_ERROR(graph->Begin());
  const absl::Status done = work();
  if (!done.ok()) {
    graph->Abandon();
    return done;
  }
  TANDEM_RETURN_IF_ERROR(graph->End());
  return graph;
}

}  // namespace tandem
