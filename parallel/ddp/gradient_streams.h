// Gradient streams: the streams on which gradients are made.

#ifndef TANDEM_PARALLEL_DDP_GRADIENT_STREAMS_H_
#define TANDEM_PARALLEL_DDP_GRADIENT_STREAMS_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>
#include <vector>

#include "parallel/optim/flat_buffer.h"

namespace tandem {

// The streams on which autograd accumulates gradients: of each device
// that has streams, the one that was current when its buffer was made.
std::vector<c10::Stream> GradientStreams(
    const std::vector<FlatBuffer*>& buffers);

// The first buffer's device; the CPU without buffers.
c10::Device DeviceOfGradients(const std::vector<FlatBuffer*>& buffers);

// While this object lives, the calling thread works on GradientStreams, behind
// the gradients there are. Autograd sees to that only for the device whose
// gradient it has come to; what becomes due then may be another device's. What
// the thread's own streams are given later runs behind its work.
class GradientStreamsGuard {
 public:
  explicit GradientStreamsGuard(const std::vector<FlatBuffer*>& buffers);
  ~GradientStreamsGuard();
  GradientStreamsGuard(const GradientStreamsGuard&) = delete;
  GradientStreamsGuard& operator=(const GradientStreamsGuard&) = delete;

 private:
  const std::vector<c10::Stream> streams_;
  std::vector<c10::Stream> own_;
  std::optional<c10::MultiStreamGuard> guard_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_GRADIENT_STREAMS_H_
