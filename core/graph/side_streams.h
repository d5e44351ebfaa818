// Side streams: one for each of several devices (core/graph/side_stream.h).

#ifndef TANDEM_CORE_GRAPH_SIDE_STREAMS_H_
#define TANDEM_CORE_GRAPH_SIDE_STREAMS_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

#include "core/graph/side_stream.h"

namespace tandem {

// Not thread-safe, but for different scopes of different threads.
class SideStreams {
 public:
  SideStreams() = default;
  // A device that is named twice has one.
  explicit SideStreams(const std::vector<c10::Device>& devices);

  // SideStream::Scope, of all of them, or of one of the devices. Nothing where
  // there is none.
  class Scope {
   public:
    explicit Scope(const SideStreams& sides);
    Scope(const SideStreams& sides, c10::Device device);
    // The last one first.
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::vector<std::unique_ptr<SideStream::Scope>> scopes_;
  };

  bool empty() const { return sides_.empty(); }

 private:
  std::vector<SideStream> sides_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_GRAPH_SIDE_STREAMS_H_
