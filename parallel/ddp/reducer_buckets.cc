// The reducer's buckets: which there are, in what order, and what is in them.
// What happens to them in a backward is in reducer.cc.

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "parallel/ddp/reducer.h"

namespace tandem {
namespace {

// Messages name so many parameters of a bucket, which may have hundreds.
constexpr size_t kMostNames = 5;

}  // namespace

std::vector<int64_t> Reducer::RankOfPositions() const {
  std::vector<int64_t> rank_of(places_.size());
  for (size_t i = 0; i < order_.size(); ++i) rank_of[order_[i]] = i;
  return rank_of;
}

void Reducer::AssignBuckets() {
  const std::vector<int64_t> rank_of = RankOfPositions();
  buckets_ = MakeBuckets(buffers_, options_.buckets, rank_of);
  for (Bucket& bucket : buckets_) TrimDead(&bucket);
  buckets_.erase(std::remove_if(buckets_.begin(), buckets_.end(),
                                [](const Bucket& bucket) {
                                  return bucket.end == bucket.first;
                                }),
                 buckets_.end());
  if (!options_.delayed.empty()) InsertDelayed(rank_of);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (size_t i = buckets_[b].first; i < buckets_[b].end; ++i) {
      places_[buckets_[b].buffer->slots()[i].position].bucket = b;
    }
  }
}

// What no rank uses comes last in its buffer, and need not travel.
void Reducer::TrimDead(Bucket* bucket) const {
  const std::vector<FlatSlot>& slots = bucket->buffer->slots();
  while (bucket->end > bucket->first &&
         places_[slots[bucket->end - 1].position].dead) {
    --bucket->end;
    bucket->length = slots[bucket->end].offset - bucket->offset;
  }
}

// Right after the bucket of the parameter that they wait for.
void Reducer::InsertDelayed(const std::vector<int64_t>& rank_of) {
  BucketOptions whole;
  whole.limits = {std::numeric_limits<int64_t>::max()};
  const std::vector<Bucket> delayed =
      MakeBuckets(options_.delayed, whole, rank_of);
  const Place& until = places_.at(options_.delayed_until);
  auto at = buckets_.begin();
  while (at != buckets_.end() &&
         !(at->buffer == until.buffer && until.index() >= at->first &&
           until.index() < at->end)) {
    ++at;
  }
  if (at != buckets_.end()) ++at;
  buckets_.insert(at, delayed.begin(), delayed.end());
}

bool Reducer::IsDelayed(const Bucket& bucket) const {
  return places_[bucket.buffer->slots()[bucket.first].position].delayed;
}

absl::Status Reducer::Rebuild() {
  const bool keep = std::any_of(
      buffers_.begin(), buffers_.end(),
      [](const FlatBuffer* buffer) { return buffer->keeps_order(); });
  if (keep) return absl::OkStatus();
  rebuilt_ = true;
  std::stable_partition(order_.begin(), order_.end(),
                        [&](int64_t p) { return !places_[p].dead; });
  const at::Tensor order = at::tensor(order_, at::kLong);
  TANDEM_RETURN_IF_ERROR(group_.Broadcast(order, /*root=*/0));
  const auto* positions = order.const_data_ptr<int64_t>();
  order_.assign(positions, positions + order.numel());
  const std::vector<int64_t> rank_of = RankOfPositions();
  for (FlatBuffer* buffer : buffers_) {
    std::vector<size_t> slots(buffer->slots().size());
    std::iota(slots.begin(), slots.end(), 0);
    std::stable_sort(slots.begin(), slots.end(), [&](size_t a, size_t b) {
      return rank_of[buffer->slots()[a].position] <
             rank_of[buffer->slots()[b].position];
    });
    if (!std::is_sorted(slots.begin(), slots.end())) buffer->Reorder(slots);
  }
  AssignBuckets();
  return absl::OkStatus();
}

GradBucket Reducer::DescribeBucket(size_t index) const {
  const Bucket& bucket = buckets_[index];
  GradBucket described;
  described.index = static_cast<int64_t>(index);
  described.is_last = index + 1 == buckets_.size();
  described.buffer =
      bucket.buffer->grads().narrow(0, bucket.offset, bucket.length);
  if (!hook_) return described;
  for (size_t i = bucket.first; i < bucket.end; ++i) {
    const FlatSlot& slot = bucket.buffer->slots()[i];
    described.gradients.push_back(
        bucket.buffer->View(bucket.buffer->grads(), slot));
    described.parameters.push_back(slot.parameter);
    described.names.push_back(slot.name);
  }
  return described;
}

std::string Reducer::Purpose(size_t index) const {
  const Bucket& bucket = buckets_[index];
  const size_t count = bucket.end - bucket.first;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(count, kMostNames); ++i) {
    names.push_back(bucket.buffer->slots()[bucket.first + i].name);
  }
  std::string parameters = absl::StrJoin(names, ", ");
  if (count > kMostNames) {
    absl::StrAppend(&parameters, " and ", count - kMostNames, " more");
  }
  return absl::StrCat("bucket ", index, " (", parameters, ") of step ",
                      steps_ + 1);
}

}  // namespace tandem
