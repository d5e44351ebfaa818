#include "parallel/ddp/bucket_reduction.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {

absl::StatusOr<BucketReduction> BucketReduction::Start(
    GradBucket bucket, const CommunicationHook& hook, Communicator& group,
    int divisor, Purpose purpose) {
  BucketReduction reduction;
  reduction.started_ = Clock::now();
  if (hook) {
    auto finish = CatchTorchOr([&] { return hook(bucket, group); });
    if (!finish.ok()) return Annotate(finish.status(), purpose());
    reduction.finish_ = *std::move(finish);
  } else {
    TANDEM_ASSIGN_OR_RETURN(
        reduction.all_reduce_,
        group.StartAllReduceSum(bucket.buffer, 1.0 / divisor, purpose));
  }
  reduction.bucket_ = std::move(bucket);
  reduction.purpose_ = std::move(purpose);
  return reduction;
}

absl::Status BucketReduction::Finish() {
  absl::Status status;
  if (finish_) {
    status = CatchTorch([&] { return finish_(); });
    if (!status.ok()) status = Annotate(status, purpose_());
  } else {
    status = all_reduce_.Wait();  // which names the purpose itself
  }
  ended_ = finish_ ? Clock::now() : all_reduce_.ended();
  return status;
}

}  // namespace tandem
