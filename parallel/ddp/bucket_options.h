// Bucket options: how many gradients travel together.

#ifndef TANDEM_PARALLEL_DDP_BUCKET_OPTIONS_H_
#define TANDEM_PARALLEL_DDP_BUCKET_OPTIONS_H_

#include <cstdint>
#include <vector>

namespace tandem {

// A bucket is full when it holds its limit in bytes, or more. The limits are
// those of the first bucket of a buffer, of the second, ...; the last one
// serves all further ones.
struct BucketOptions {
  // PyTorch's: 1 MiB, so that the first all-reduce starts early, then 25 MiB.
  std::vector<int64_t> limits = {1 << 20, 25 << 20};
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_BUCKET_OPTIONS_H_
