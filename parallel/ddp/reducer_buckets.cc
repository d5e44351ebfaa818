#include "parallel/ddp/reducer_buckets.h"

#include <ATen/ops/tensor.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/flight/recorder.h"
#include "parallel/channel/copy_channel.h"

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

// Messages name so many parameters of a bucket, which may have hundreds.
constexpr size_t kMostNames = 5;

}  // namespace

std::vector<c10::Stream> GradientStreams(
    const std::vector<FlatBuffer*>& buffers) {
  std::vector<c10::Stream> streams;
  for (const FlatBuffer* buffer : buffers) {
    // Has no streams: nothing to look up in every step.
    if (buffer->grads().is_cpu()) continue;
    const auto stream = torch::autograd::impl::grad_accumulator(
                            buffer->slots().front().parameter)
                            ->stream();
    if (!stream) continue;
    const bool known = std::any_of(
        streams.begin(), streams.end(),
        [&](const auto& each) { return each.device() == stream->device(); });
    if (!known) streams.push_back(*stream);
  }
  return streams;
}

c10::Device DeviceOfGradients(const std::vector<FlatBuffer*>& buffers) {
  return buffers.empty() ? c10::Device(c10::kCPU)
                         : buffers.front()->grads().device();
}

GradientStreamsGuard::GradientStreamsGuard(
    const std::vector<FlatBuffer*>& buffers)
    : streams_(GradientStreams(buffers)) {
  for (const c10::Stream& stream : streams_) {
    own_.push_back(CurrentStream(stream.device()));
  }
  if (!streams_.empty()) guard_.emplace(streams_);
}

GradientStreamsGuard::~GradientStreamsGuard() {
  guard_.reset();
  for (size_t i = 0; i < own_.size(); ++i) {
    if (own_[i] == streams_[i]) continue;
    StreamOrder().FollowProducer(own_[i], streams_[i]);
  }
}

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

ReducerBuckets::ReducerBuckets(std::vector<FlatBuffer*> buffers,
                               ReducerOptions options)
    : at_once_(std::move(buffers)),
      all_(at_once_),
      options_(std::move(options)) {
  all_.insert(all_.end(), options_.delayed.begin(), options_.delayed.end());
  for (size_t i = 0; i < all_.size(); ++i) {
    for (const FlatSlot& slot : all_[i]->slots()) {
      const auto position = static_cast<size_t>(slot.position);
      if (places_.size() <= position) places_.resize(position + 1);
      places_[position] = {all_[i], slot.id, /*delayed=*/i >= at_once_.size()};
    }
  }
}

std::vector<std::string> ReducerBuckets::NamesByPosition() const {
  std::vector<std::string> names;
  for (const FlatBuffer* buffer : at_once_) {
    for (const FlatSlot& slot : buffer->slots()) {
      const auto position = static_cast<size_t>(slot.position);
      if (names.size() <= position) names.resize(position + 1);
      names[position] = slot.name;
    }
  }
  return names;
}

c10::Device ReducerBuckets::device() const {
  return DeviceOfGradients(at_once_);
}

absl::Status ReducerBuckets::CheckParameters() const {
  for (const FlatBuffer* buffer : all_) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckParameters());
  }
  return absl::OkStatus();
}

void ReducerBuckets::ZeroUnused(
    absl::FunctionRef<bool(const ParameterPlace&, size_t position)> which)
    const {
  for (size_t p = 0; p < places_.size(); ++p) {
    const ParameterPlace& place = places_[p];
    if (place.buffer == nullptr || place.dead || !which(place, p)) continue;
    if (place.has_gradient()) continue;
    const FlatSlot& slot = place.slot();
    place.buffer->grads().narrow(0, slot.offset, slot.numel).zero_();
  }
}

std::vector<int64_t> ReducerBuckets::RankOfPositions() const {
  std::vector<int64_t> rank_of(places_.size());
  for (size_t i = 0; i < order_.size(); ++i) rank_of[order_[i]] = i;
  return rank_of;
}

void ReducerBuckets::Assign() {
  const std::vector<int64_t> rank_of = RankOfPositions();
  buckets_ = MakeBuckets(at_once_, options_.buckets, rank_of);
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
void ReducerBuckets::TrimDead(Bucket* bucket) const {
  const std::vector<FlatSlot>& slots = bucket->buffer->slots();
  while (bucket->end > bucket->first &&
         places_[slots[bucket->end - 1].position].dead) {
    --bucket->end;
    bucket->length = slots[bucket->end].offset - bucket->offset;
  }
}

// Right after the bucket of the parameter that they wait for.
void ReducerBuckets::InsertDelayed(const std::vector<int64_t>& rank_of) {
  BucketOptions whole;
  whole.limits = {std::numeric_limits<int64_t>::max()};
  const std::vector<Bucket> delayed =
      MakeBuckets(options_.delayed, whole, rank_of);
  const ParameterPlace& until = places_.at(options_.delayed_until);
  auto at = buckets_.begin();
  while (at != buckets_.end() &&
         !(at->buffer == until.buffer && until.index() >= at->first &&
           until.index() < at->end)) {
    ++at;
  }
  if (at != buckets_.end()) ++at;
  buckets_.insert(at, delayed.begin(), delayed.end());
}

bool ReducerBuckets::IsDelayed(size_t index) const {
  const Bucket& bucket = buckets_[index];
  return places_[bucket.buffer->slots()[bucket.first].position].delayed;
}

absl::Status ReducerBuckets::Rebuild(Communicator& group) {
  const bool keep = std::any_of(
      at_once_.begin(), at_once_.end(),
      [](const FlatBuffer* buffer) { return buffer->keeps_order(); });
  if (keep) return absl::OkStatus();
  rebuilt_ = true;
  std::stable_partition(order_.begin(), order_.end(),
                        [&](int64_t p) { return !places_[p].dead; });
  const at::Tensor order = at::tensor(order_, at::kLong);
  const FlightPurposeScope flight({"order of buckets"});
  TANDEM_RETURN_IF_ERROR(group.Broadcast(
      order, /*root=*/0, [] { return "the order of buckets"; }));
  const auto* positions = order.const_data_ptr<int64_t>();
  order_.assign(positions, positions + order.numel());
  const std::vector<int64_t> rank_of = RankOfPositions();
  for (FlatBuffer* buffer : at_once_) {
    std::vector<size_t> slots(buffer->slots().size());
    std::iota(slots.begin(), slots.end(), 0);
    std::stable_sort(slots.begin(), slots.end(), [&](size_t a, size_t b) {
      return rank_of[buffer->slots()[a].position] <
             rank_of[buffer->slots()[b].position];
    });
    if (!std::is_sorted(slots.begin(), slots.end())) buffer->Reorder(slots);
  }
  Assign();
  return absl::OkStatus();
}

GradBucket ReducerBuckets::Describe(size_t index, bool for_hook) const {
  const Bucket& bucket = buckets_[index];
  GradBucket described;
  described.index = static_cast<int64_t>(index);
  described.is_last = index + 1 == buckets_.size();
  described.buffer =
      bucket.buffer->grads().narrow(0, bucket.offset, bucket.length);
  if (!for_hook) return described;
  for (size_t i = bucket.first; i < bucket.end; ++i) {
    const FlatSlot& slot = bucket.buffer->slots()[i];
    described.gradients.push_back(
        bucket.buffer->View(bucket.buffer->grads(), slot));
    described.parameters.push_back(slot.parameter);
    described.names.push_back(slot.name);
  }
  return described;
}

std::string ReducerBuckets::Purpose(size_t index, int64_t step) const {
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
  return absl::StrCat("bucket ", index, " (", parameters, ") of step ", step);
}

}  // namespace tandem
