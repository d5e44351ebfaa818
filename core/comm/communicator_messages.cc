// Messages between two ranks of a group.

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/comm/collective_runner.h"
#include "core/comm/communicator.h"
#include "core/comm/communicator_tensors.h"

namespace tandem {
namespace {

absl::Status CheckPeer(const Communicator& group, absl::string_view operation,
                       int peer) {
  if (peer >= 0 && peer < group.size() && peer != group.rank()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(operation, " of group \"", group.name(), "\": rank ", peer,
                   " is no other rank than this one (", group.rank(), ") of ",
                   group.size()));
}

}  // namespace

absl::StatusOr<PendingCollective> Communicator::StartSend(
    const at::Tensor& tensor, int to, int tag,
    const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckTensor(*this, "send", tensor));
  TANDEM_RETURN_IF_ERROR(CheckPeer(*this, "send", to));
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
  TANDEM_RETURN_IF_ERROR(CheckTensor(*this, "receive", tensor));
  TANDEM_RETURN_IF_ERROR(CheckPeer(*this, "receive", from));
  if (tensor.numel() == 0) return PendingCollective();
  std::vector<at::Tensor> tensors = {BytesOf(ForBackend(tensor))};
  return runner_->StartMessage(
      absl::StrCat("receive from rank ", NameOf(from)), purpose, [&] {
        return process_group_->getBackend(tensors[0].device().type())
            ->recv(tensors, from, tag);
      });
}

}  // namespace tandem
