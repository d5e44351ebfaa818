// Capture mark: whether a device's work is being written down in a graph (CUDA
// graphs) instead of run.

#ifndef TANDEM_CORE_DEVICE_CAPTURE_MARK_H_
#define TANDEM_CORE_DEVICE_CAPTURE_MARK_H_

#include <c10/core/Device.h>

namespace tandem {

// While it lives, what is given to the device's streams is captured. One thread
// at a time for a device; other threads may ask.
class CaptureMark {
 public:
  explicit CaptureMark(c10::Device device);
  ~CaptureMark();
  CaptureMark(const CaptureMark&) = delete;
  CaptureMark& operator=(const CaptureMark&) = delete;

 private:
  const c10::Device device_;
};

// For what makes no sense in a graph: times, and looking for the end of a work
// that only replays run. Thread-safe.
bool WorkIsCaptured(c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_CAPTURE_MARK_H_
