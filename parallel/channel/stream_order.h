// Order between streams: copies between devices, and what is computed there, on
// devices that work through streams.
//
// Each step is a method of its own, so that a test can leave one out and see
// that it is missed.

#ifndef TANDEM_PARALLEL_CHANNEL_STREAM_ORDER_H_
#define TANDEM_PARALLEL_CHANNEL_STREAM_ORDER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <vector>

#include "core/device/own_stream.h"

namespace tandem {

// A stream of the device's for whoever holds it; null when it works without
// streams, or through one only.
OwnStream NewStream(c10::Device device);

// The stream on which the calling thread computes on the device.
c10::Stream CurrentStream(c10::Device device);
// Streams of several devices, to be the current ones of another thread. The
// CPU, which has none, is left out.
std::vector<c10::Stream> CurrentStreams(
    const std::vector<c10::Device>& devices);

// Thread-safe: it has no state. Throws LibTorch's exceptions.
class StreamOrder {
 public:
  virtual ~StreamOrder() = default;

  // What `copying` is given from now on runs after all that `producer` was
  // given until now.
  virtual void FollowProducer(const c10::Stream& copying,
                              const c10::Stream& producer) const;

  // What `consumer` is given from now on runs after the copies, which `copied`
  // was recorded behind.
  virtual void FollowCopy(const c10::Stream& consumer,
                          const c10::Event& copied) const;

  // The tensor's memory is given to nobody else before what `stream` was given
  // until the tensor's death has run.
  virtual void Keep(const at::Tensor& tensor, const c10::Stream& stream) const;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_STREAM_ORDER_H_
