#include "core/random/draws.h"

#include <mutex>

namespace tandem {

at::Generator DrawRecord::Recording::Make(c10::Device device) const {
  at::Generator outside = Outside(device);
  if (outside.defined()) {
    const std::lock_guard<std::mutex> lock(outside.mutex());
    record_->before_.push_back(outside.clone());
  }
  return outside;
}

at::Generator DrawRecord::Replay::Make(c10::Device device) const {
  for (const at::Generator& each : record_->before_) {
    if (each.device() == device) return each.clone();
  }
  return Outside(device);
}

}  // namespace tandem
