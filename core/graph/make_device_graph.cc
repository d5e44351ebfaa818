#include "core/graph/make_device_graph.h"

#include <c10/core/DeviceType.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/graph/sim_graph.h"
#include "core/sim/streams/streams.h"
#ifdef TANDEM_CUDA
#include "core/graph/cuda_graph.h"
#endif

namespace tandem {
namespace {

absl::Status CheckHasStreams() {
  if (sim::IsAsynchronous()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "simulated devices have no streams to capture unless they are "
      "asynchronous (--sim_async)");
}

absl::Status CheckCudaIsBuilt() {
#ifdef TANDEM_CUDA
  return absl::OkStatus();
#else
  return absl::FailedPreconditionError(
      "CUDA is not in this build: build it with --config=cuda");
#endif
}

}  // namespace

absl::Status CheckHasGraphs(c10::Device device) {
  if (device.type() == c10::DeviceType::PrivateUse1) return CheckHasStreams();
  if (device.is_cuda()) return CheckCudaIsBuilt();
  return absl::FailedPreconditionError(
      absl::StrCat(device.str(), " has no graphs, which are for GPUs"));
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeDeviceGraph(
    c10::Device device) {
  TANDEM_RETURN_IF_ERROR(CheckHasGraphs(device));
#ifdef TANDEM_CUDA
  if (device.is_cuda()) return MakeCudaGraph(device);
#endif
  return MakeSimGraph(device);
}

}  // namespace tandem
