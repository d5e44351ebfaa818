#include "parallel/bucket_reduction.h"

#include <utility>

#include "core/status_macros.h"
#include "core/torch_status.h"

namespace tandem {

absl::StatusOr<BucketReduction> BucketReduction::Start(
    GradBucket bucket, const CommunicationHook& hook, Communicator& group,
    Purpose purpose) {
  BucketReduction reduction;
  reduction.started_ = Clock::now();
  if (hook) {
    auto finish = CatchTorchOr([&] { return hook(bucket, group); });
    if (!finish.ok()) return Annotate(finish.status(), purpose());
    reduction.finish_ = *std::move(finish);
  } else {
    auto started = group.StartAllReduceSum(bucket.buffer, 1.0 / group.size());
    if (!started.ok()) return Annotate(started.status(), purpose());
    reduction.all_reduce_ = *std::move(started);
  }
  reduction.bucket_ = std::move(bucket);
  reduction.purpose_ = std::move(purpose);
  return reduction;
}

absl::Status BucketReduction::Finish() {
  const absl::Status status =
      finish_ ? CatchTorch([&] { return finish_(); }) : all_reduce_.Wait();
  ended_ = finish_ ? Clock::now() : all_reduce_.ended();
  return status.ok() ? status : Annotate(status, purpose_());
}

}  // namespace tandem
