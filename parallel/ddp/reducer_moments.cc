#include "parallel/ddp/reducer_moments.h"

#include <algorithm>

namespace tandem {
namespace {

using Clock = DeviceMoment::Clock;

Clock::time_point BucketEnd(const ReducerMoments::Bucket& bucket) {
  const Clock::time_point awaited = bucket.awaited.time();
  if (bucket.sums == nullptr) return awaited;
  Clock::time_point end;
  for (const PendingCollective& sum : *bucket.sums) {
    const Clock::time_point ended = sum.ended();
    if (ended == Clock::time_point()) return awaited;  // it does not know yet
    end = std::max(end, ended);
  }
  return std::min(end, awaited);
}

}  // namespace

bool HaveCome(const ReducerMoments& moments) {
  return moments.ended.has_come();
}

ReducerTimes AwaitTimes(const ReducerMoments& moments) {
  ReducerTimes times;
  times.began = moments.began.time();
  times.gradients_ready = moments.gradients_ready.time();
  times.ended = moments.ended.time();
  for (const ReducerMoments::Bucket& each : moments.buckets) {
    times.buckets.push_back({each.started.time(), BucketEnd(each)});
  }
  return times;
}

}  // namespace tandem
