#include "parallel/comm_hooks/compression_hooks.h"

#include <ATen/core/grad_mode.h>

#include <memory>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_buffer.h"
#include "core/comm/pending_collective.h"
#include "parallel/comm_hooks/communication_hook.h"

namespace tandem {
namespace {

FinishReduction WaitFor(PendingCollective pending) {
  // std::function wants something that can be copied.
  auto shared = std::make_shared<PendingCollective>(std::move(pending));
  return [shared] { return shared->Wait(); };
}

absl::StatusOr<FinishReduction> Mean(const GradBucket& bucket,
                                     Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                          StartAllReduceMean(bucket.buffer, group));
  return WaitFor(std::move(pending));
}

// The same bucket over `buffer`, which has another dtype.
GradBucket Over(const at::Tensor& buffer, const GradBucket& bucket) {
  GradBucket other = bucket;
  other.buffer = buffer;
  const int64_t begin = bucket.buffer.storage_offset();
  for (at::Tensor& gradient : other.gradients) {
    gradient = buffer.as_strided(
        gradient.sizes(), gradient.strides(),
        buffer.storage_offset() + gradient.storage_offset() - begin);
  }
  return other;
}

class Compression {
 public:
  Compression(at::ScalarType dtype, CommunicationHook hook)
      : dtype_(dtype), hook_(std::move(hook)) {}

  absl::StatusOr<FinishReduction> operator()(const GradBucket& bucket,
                                             Communicator& group) {
    if (bucket.buffer.scalar_type() == dtype_) return hook_(bucket, group);
    TANDEM_ASSIGN_OR_RETURN(GradBucket * compressed, Compress(bucket, group));
    TANDEM_ASSIGN_OR_RETURN(FinishReduction finish, hook_(*compressed, group));
    return FinishReduction([buffer = bucket.buffer, half = compressed->buffer,
                            finish = std::move(finish)]() -> absl::Status {
      TANDEM_RETURN_IF_ERROR(finish());
      return CatchTorch([&] { Copy(half, buffer); }, "gradient decompression");
    });
  }

 private:
  static void Copy(const at::Tensor& from, const at::Tensor& to) {
    at::NoGradGuard no_grad;
    to.copy_(from);
  }

  absl::StatusOr<GradBucket*> Compress(const GradBucket& bucket,
                                       Communicator& group) {
    GradBucket* kept = memory_.Find(bucket);
    if (kept == nullptr) {
      TANDEM_ASSIGN_OR_RETURN(
          at::Tensor buffer,
          NewGroupBuffer(group, bucket.buffer.numel(),
                         bucket.buffer.options().dtype(dtype_)));
      kept = memory_.Keep(bucket, Over(buffer, bucket));
    }
    kept->is_last = bucket.is_last;
    TANDEM_RETURN_IF_ERROR(CatchTorch(
        [&] { Copy(bucket.buffer, kept->buffer); }, "gradient compression"));
    return kept;
  }

  at::ScalarType dtype_;
  CommunicationHook hook_;
  BucketMemory<GradBucket> memory_;
};

CommunicationHook Compress(at::ScalarType dtype, CommunicationHook hook) {
  auto compression = std::make_shared<Compression>(dtype, std::move(hook));
  return [compression](const GradBucket& bucket, Communicator& group) {
    return (*compression)(bucket, group);
  };
}

}  // namespace

CommunicationHook AllReduceHook() {
  return [](const GradBucket& bucket,
            Communicator& group) -> absl::StatusOr<FinishReduction> {
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective pending,
        group.StartAllReduceSum(bucket.buffer, 1.0 / group.size()));
    return WaitFor(std::move(pending));
  };
}

CommunicationHook CompressHook(c10::ScalarType dtype) {
  return Compress(dtype, Mean);
}

CommunicationHook Fp16CompressHook() { return Fp16CompressWrapper(Mean); }

CommunicationHook Bf16CompressHook() { return Bf16CompressWrapper(Mean); }

CommunicationHook Fp16CompressWrapper(CommunicationHook hook) {
  return Compress(at::kHalf, std::move(hook));
}

CommunicationHook Bf16CompressWrapper(CommunicationHook hook) {
  return Compress(at::kBFloat16, std::move(hook));
}

}  // namespace tandem
