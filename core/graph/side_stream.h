// Side stream: a stream of a device's beside its default one, which CUDA's
// graphs cannot be captured on.

#ifndef TANDEM_CORE_GRAPH_SIDE_STREAM_H_
#define TANDEM_CORE_GRAPH_SIDE_STREAM_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include "core/device/own_stream.h"

namespace tandem {

// Not thread-safe, but for different scopes of different threads.
class SideStream {
 public:
  // Copies are one stream. Not for the CPU.
  explicit SideStream(c10::Device device);

  // While it lives, this stream is the calling thread's current one: it comes
  // behind what was given to the one before, and what is given to that one
  // afterwards comes behind it.
  class Scope {
   public:
    explicit Scope(const SideStream& side);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const c10::Stream before_;
    const c10::Stream side_;
    const c10::StreamGuard guard_;
  };

  c10::Stream stream() const { return *stream_; }

 private:
  OwnStream stream_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_GRAPH_SIDE_STREAM_H_
