// Gradient buckets: gradients that travel together.

#ifndef TANDEM_PARALLEL_DDP_BUCKETS_H_
#define TANDEM_PARALLEL_DDP_BUCKETS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "parallel/ddp/reducer_options.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {

// Some neighbours of one flat buffer: its gradients are a slice.
struct Bucket {
  FlatBuffer* buffer;
  size_t first;  // its slots [first, end)
  size_t end;
  int64_t offset;  // elements [offset, offset + length), padding included
  int64_t length;
};

// Cuts every buffer into buckets, in the order of its slots, and puts the
// buckets of all buffers into the order in which they fill when gradients
// become ready in the order `rank_of` (by position: FlatSlot::position; as
// large as the greatest one requires). Every slot is in one bucket.
std::vector<Bucket> MakeBuckets(absl::Span<FlatBuffer* const> buffers,
                                const BucketOptions& options,
                                const std::vector<int64_t>& rank_of);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_BUCKETS_H_
