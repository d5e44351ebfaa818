// Messages between two ranks of a group.

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/collective_runner.h"
#include "core/comm/communicator.h"
#include "core/comm/communicator_tensors.h"

namespace tandem {

absl::Status Communicator::CheckPeer(absl::string_view operation,
                                     int peer) const {
  if (peer >= 0 && peer < size_ && peer != rank_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(operation, " of group \"", name_, "\": rank ", peer,
                   " is no other rank than this one (", rank_, ") of ", size_));
}

absl::StatusOr<PendingCollective> Communicator::StartSend(
    const at::Tensor& tensor, int to, int tag,
    const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckTensor("send", tensor));
  TANDEM_RETURN_IF_ERROR(CheckPeer("send", to));
  if (tensor.numel() == 0) return PendingCollective();
  std::vector<at::Tensor> tensors = {BytesOf(ForBackend(tensor))};
  return runner_->StartMessage(
      absl::StrCat("send to rank ", NameOf(to)), purpose, [&] {
        return process_group_->getBackend(tensors[0].device().type())
            ->send(tensors, to, tag);
      });
}

absl::StatusOr<PendingCollective> Communicator::StartReceive(
    at::Tensor tensor, int from, int tag, const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckTensor("receive", tensor));
  TANDEM_RETURN_IF_ERROR(CheckPeer("receive", from));
  if (tensor.numel() == 0) return PendingCollective();
  std::vector<at::Tensor> tensors = {BytesOf(ForBackend(tensor))};
  return runner_->StartMessage(
      absl::StrCat("receive from rank ", NameOf(from)), purpose, [&] {
        return process_group_->getBackend(tensors[0].device().type())
            ->recv(tensors, from, tag);
      });
}

}  // namespace tandem
