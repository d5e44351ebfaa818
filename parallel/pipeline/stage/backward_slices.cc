#include "parallel/pipeline/stage/backward_slices.h"

#include <ATen/Tensor.h>

#include "absl/strings/str_cat.h"
#include "core/device/device_trace.h"

namespace tandem {

void BackwardSlices::Watch(const std::string& layer, const at::Tensor& output) {
  if (!output.defined() || !output.requires_grad()) return;
  output.register_hook(
      [self = shared_from_this(), layer](const at::Tensor& /*gradient*/) {
        self->Begin(layer);
      });
}

void BackwardSlices::Begin(std::optional<std::string> layer) {
  const DeviceMoment now = DeviceMoment::Now(device_);
  absl::MutexLock lock(&mutex_);
  if (running_.has_value()) {
    AddDeviceSlice(track_, absl::StrCat(running_->layer, " (backward)"),
                   running_->since, now);
  }
  running_.reset();
  if (layer.has_value()) running_ = Running{*std::move(layer), now};
}

}  // namespace tandem
