#include "core/checkpoint/stored_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

absl::Status VerifyShard(const StoredTensor& whole, const TensorShard& shard) {
  return whole.verify_shard ? whole.verify_shard(shard) : Verify(whole);
}

absl::StatusOr<at::Tensor> ReadAndSelect(const StoredTensor& whole,
                                         const TensorShard& shard) {
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, whole.read());
  return CatchTorchOr([&] { return SelectShard(values, shard); });
}

absl::StatusOr<at::Tensor> ReadShard(const StoredTensor& whole,
                                     const TensorShard& shard) {
  if (!whole.read_shard) return ReadAndSelect(whole, shard);
  // Before memory is taken.
  TANDEM_RETURN_IF_ERROR(VerifyShard(whole, shard));
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, CatchTorchOr([&] {
                            return at::empty(ShardSizes(shard),
                                             whole.info.dtype);
                          }));
  TANDEM_RETURN_IF_ERROR(whole.read_shard(shard, values));
  return values;
}

absl::Status ReadShardInto(const StoredTensor& whole, const TensorShard& shard,
                           const at::Tensor& target) {
  if (whole.read_shard) return whole.read_shard(shard, target);
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, ReadAndSelect(whole, shard));
  return CatchTorch([&] { target.copy_(values); });
}

}  // namespace

StoredTensors::StoredTensors(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    Add({MakeTensorInfo(name, tensor),
         [tensor = tensor]() -> absl::StatusOr<at::Tensor> { return tensor; },
         nullptr});
  }
}

absl::Status Verify(const StoredTensor& tensor) {
  return tensor.verify ? tensor.verify() : absl::OkStatus();
}

StoredTensor StoredShard(const StoredTensor& whole, const TensorShard& shard) {
  StoredTensor part;
  part.info = whole.info;
  part.info.sizes = ShardSizes(shard);
  part.read = [whole, shard] { return ReadShard(whole, shard); };
  part.verify = [whole, shard] { return VerifyShard(whole, shard); };
  part.read_into = [whole, shard, info = part.info](
                       const at::Tensor& target) -> absl::StatusOr<bool> {
    if (!whole.read_shard || target.sizes() != info.sizes ||
        target.scalar_type() != info.dtype) {
      return false;
    }
    TANDEM_RETURN_IF_ERROR(whole.read_shard(shard, target));
    return true;
  };
  part.read_shard = [whole, shard](const TensorShard& inner,
                                   const at::Tensor& target) {
    return ReadShardInto(whole, ShardOfShard(shard, inner), target);
  };
  part.verify_shard = [whole, shard](const TensorShard& inner) {
    return VerifyShard(whole, ShardOfShard(shard, inner));
  };
  return part;
}

absl::Status ReadInto(const StoredTensor& tensor, const at::Tensor& target) {
  if (tensor.read_into && target.device().is_cpu() &&
      target.scalar_type() == tensor.info.dtype &&
      target.sizes() == tensor.info.sizes) {
    TANDEM_ASSIGN_OR_RETURN(const bool done, tensor.read_into(target));
    if (done) {
      // copy_ does the same: code that keeps something made of the tensor looks
      // at its version.
      target.unsafeGetTensorImpl()->bump_version();
      return absl::OkStatus();
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, tensor.read());
  target.copy_(values);
  return absl::OkStatus();
}

}  // namespace tandem
