#include "parallel/ddp/bucket_reduction.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {

absl::StatusOr<BucketReduction> BucketReduction::Start(
    GradBucket bucket, const CommunicationHook& hook, Communicator& group,
    int divisor, Purpose purpose) {
  BucketReduction reduction;
  reduction.device_ = bucket.buffer.device();
  reduction.moments_.started = DeviceMoment::Now(reduction.device_);
  if (hook) {
    auto finish = CatchTorchOr([&] { return hook(bucket, group); });
    if (!finish.ok()) return Annotate(finish.status(), purpose());
    reduction.finish_ = *std::move(finish);
  } else {
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective sum,
        group.StartAllReduceSum(bucket.buffer, 1.0 / divisor, purpose));
    reduction.sums_ = std::make_shared<std::vector<PendingCollective>>();
    reduction.sums_->push_back(std::move(sum));
  }
  reduction.bucket_ = std::move(bucket);
  reduction.purpose_ = std::move(purpose);
  return reduction;
}

absl::StatusOr<BucketReduction> BucketReduction::StartScatter(
    const Bucket& bucket, Communicator& group, int divisor, Purpose purpose) {
  BucketReduction reduction;
  reduction.device_ = bucket.buffer->grads().device();
  reduction.moments_.started = DeviceMoment::Now(reduction.device_);
  reduction.sums_ = std::make_shared<std::vector<PendingCollective>>();
  for (int rank = 0; rank < group.size(); ++rank) {
    const ElementSpan span = ShareSpan(*bucket.buffer, {rank, group.size()});
    const int64_t begin = std::max(span.begin, bucket.offset);
    const int64_t end = std::min(span.end, bucket.offset + bucket.length);
    if (begin >= end) continue;
    TANDEM_ASSIGN_OR_RETURN(PendingCollective sum,
                            group.StartReduceSum(bucket.buffer->grads().narrow(
                                                     0, begin, end - begin),
                                                 rank, 1.0 / divisor, purpose));
    reduction.sums_->push_back(std::move(sum));
  }
  reduction.purpose_ = std::move(purpose);
  return reduction;
}

absl::Status BucketReduction::Finish() {
  if (finish_) {
    const absl::Status status = CatchTorch([&] { return finish_(); });
    moments_.awaited = DeviceMoment::Now(device_);
    return status.ok() ? status : Annotate(status, purpose_());
  }
  for (PendingCollective& sum : *sums_) {
    TANDEM_RETURN_IF_ERROR(sum.Wait());  // which names the purpose itself
  }
  moments_.awaited = DeviceMoment::Now(device_);
  moments_.sums = sums_;
  return absl::OkStatus();
}

}  // namespace tandem
