// Chunked collective: three phases over a tensor in chunks, whose phases
// overlap.

#ifndef TANDEM_CORE_BACKEND_CHUNKED_PHASES_H_
#define TANDEM_CORE_BACKEND_CHUNKED_PHASES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace tandem {

// What is done with a chunk: each starts an operation on it. An empty function:
// this rank has no part in that phase.
struct ThreePhases {
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(
      std::vector<at::Tensor>& chunk)>;
  Start up;      // inside of hosts
  Start across;  // between hosts
  Start down;    // inside of hosts
};

// Cuts the tensor into chunks of about `chunk_bytes` (at least 64), in the same
// way on all ranks that give the same. While one chunk is between hosts, the
// next one goes up and the one before comes down:
//
//   inside    up 0  up 1  up 2     down 0  up 3     down 1 ...
//   between         across 0  across 1         across 2 ...
//
// Operations inside of hosts are started in this order on every rank, and those
// between hosts in theirs, whatever takes how long; at most two are between
// hosts at a time. Returns when all have ended; throws what one throws first,
// while others may still be on their way. Several tensors, or one that is not
// contiguous, are one chunk.
void RunInChunks(const std::vector<at::Tensor>& tensors, int64_t chunk_bytes,
                 const ThreePhases& phases);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_CHUNKED_PHASES_H_
