// Backward slices: which layer's backward runs when, for a trace.

#ifndef TANDEM_PARALLEL_PIPELINE_STAGE_BACKWARD_SLICES_H_
#define TANDEM_PARALLEL_PIPELINE_STAGE_BACKWARD_SLICES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/device/device_moment.h"

namespace tandem {

// A backward in one part, layer by layer: that of a layer begins when the
// gradient of its output comes, and ends when that of another layer's does. It
// only looks on, by hooks of the outputs. Thread-safe.
class BackwardSlices : public std::enable_shared_from_this<BackwardSlices> {
 public:
  // The slices, "fc1 (backward)", are on `track` (core/device/device_trace.h).
  BackwardSlices(std::string track, c10::Device device)
      : track_(std::move(track)), device_(device) {}

  // Forward has come to a layer's output. Held by a shared_ptr.
  void Watch(const std::string& layer, const at::Tensor& output);

  // Backward has ended.
  void End() { Begin(std::nullopt); }

 private:
  struct Running {
    std::string layer;
    DeviceMoment since;
  };

  // The layer's begins, another one's ends.
  void Begin(std::optional<std::string> layer);

  const std::string track_;
  const c10::Device device_;
  absl::Mutex mutex_;
  std::optional<Running> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STAGE_BACKWARD_SLICES_H_
