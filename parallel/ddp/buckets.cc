#include "parallel/ddp/buckets.h"

#include <glog/logging.h>

#include <algorithm>

namespace tandem {
namespace {

void CutBuffer(FlatBuffer* buffer, const BucketOptions& options,
               std::vector<Bucket>* buckets) {
  const std::vector<FlatSlot>& slots = buffer->slots();
  const auto bytes = static_cast<int64_t>(buffer->grads().element_size());
  size_t limit = 0;
  for (size_t first = 0; first < slots.size();) {
    Bucket bucket{buffer, first, first, slots[first].offset, 0};
    while (bucket.end < slots.size() &&
           bucket.length * bytes < options.limits[limit]) {
      bucket.length = slots[bucket.end].end - bucket.offset;
      ++bucket.end;
    }
    limit = std::min(limit + 1, options.limits.size() - 1);
    first = bucket.end;
    buckets->push_back(bucket);
  }
}

}  // namespace

std::vector<Bucket> MakeBuckets(absl::Span<FlatBuffer* const> buffers,
                                const BucketOptions& options,
                                const std::vector<int64_t>& rank_of) {
  CHECK(!options.limits.empty());
  for (int64_t limit : options.limits) CHECK_GT(limit, 0);
  std::vector<Bucket> buckets;
  for (FlatBuffer* buffer : buffers) CutBuffer(buffer, options, &buckets);
  const auto full_at = [&](const Bucket& bucket) {
    int64_t last = -1;
    for (size_t i = bucket.first; i < bucket.end; ++i) {
      last = std::max(last, rank_of.at(bucket.buffer->slots()[i].position));
    }
    return last;
  };
  std::stable_sort(buckets.begin(), buckets.end(),
                   [&](const Bucket& a, const Bucket& b) {
                     return full_at(a) < full_at(b);
                   });
  return buckets;
}

}  // namespace tandem
