// Messages between two ranks of a group.

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
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

absl::Status CheckMessage(const Communicator& group,
                          const RankMessage& message) {
  const char* const what = message.sends ? "send" : "receive";
  TANDEM_RETURN_IF_ERROR(CheckTensor(group, what, message.tensor));
  return CheckPeer(group, what, message.peer);
}

// `bytes`: the message's tensor as the backend is given it. Of a device whose
// memory the host reads, that waits for the device: not under IssueMutex().
c10::intrusive_ptr<c10d::Work> Issue(const Communicator& group,
                                     const RankMessage& message,
                                     std::vector<at::Tensor> bytes) {
  c10d::Backend& backend = BackendOf(group, bytes[0]);
  return message.sends ? backend.send(bytes, message.peer, message.tag)
                       : backend.recv(bytes, message.peer, message.tag);
}

std::vector<at::Tensor> BytesFor(const Communicator& group,
                                 const RankMessage& message) {
  return {BytesOf(ForBackend(group, message.tensor))};
}

// Those of streams, at once.
c10::intrusive_ptr<c10d::Work> IssueTogether(
    const Communicator& group, absl::Span<const RankMessage* const> messages) {
  if (messages.size() == 1) {
    return Issue(group, *messages[0], BytesFor(group, *messages[0]));
  }
  c10d::Backend& backend = BackendOf(group, messages[0]->tensor);
  backend.startCoalescing();
  // NCCL's groups are the thread's: behind one that stays open, nothing begins
  // that the thread starts, in whatever group of ranks.
  absl::Cleanup close = [&] {
    CatchTorch([&] { backend.endCoalescing(); }).IgnoreError();
  };
  for (const RankMessage* each : messages) {
    Issue(group, *each, BytesFor(group, *each));
  }
  std::move(close).Cancel();
  return backend.endCoalescing();
}

std::string TextOf(const Communicator& group, const RankMessage& message) {
  return absl::StrCat(message.sends ? "send to rank " : "receive from rank ",
                      group.NameOf(message.peer));
}

FlightOperation FlightOfMessage(const RankMessage& message) {
  FlightOperation operation = FlightOf(message.sends ? "send" : "receive",
                                       message.tensor, message.peer);
  operation.kind = message.sends ? FlightKind::kSend : FlightKind::kReceive;
  operation.tag = message.tag;
  return operation;
}

}  // namespace

absl::StatusOr<PendingCollective> Communicator::StartSend(
    const at::Tensor& tensor, int to, int tag,
    const CollectivePurpose& purpose) {
  const RankMessage message = {/*sends=*/true, tensor, to, tag};
  return StartMessages({&message, 1}, purpose);
}

absl::StatusOr<PendingCollective> Communicator::StartReceive(
    at::Tensor tensor, int from, int tag, const CollectivePurpose& purpose) {
  const RankMessage message = {/*sends=*/false, std::move(tensor), from, tag};
  return StartMessages({&message, 1}, purpose);
}

absl::StatusOr<PendingCollective> Communicator::StartMessages(
    absl::Span<const RankMessage> messages, const CollectivePurpose& purpose) {
  using Place = CollectiveRunner::Place;
  std::vector<const RankMessage*> on_streams;
  std::vector<FlightOperation> flights;
  std::vector<PendingCollective> pending;
  std::string text;
  for (const RankMessage& each : messages) {
    TANDEM_RETURN_IF_ERROR(CheckMessage(*this, each));
    if (each.tensor.numel() == 0) continue;
    if (IsOnStreams(*this, each.tensor)) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", TextOf(*this, each));
      on_streams.push_back(&each);
      flights.push_back(FlightOfMessage(each));
      continue;
    }
    const at::Tensor given = ForBackend(*this, each.tensor);
    const std::vector<at::Tensor> bytes = {BytesOf(given)};
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective started,
        runner_->StartMessage(TextOf(*this, each), {FlightOfMessage(each)},
                              purpose, {Place::kHost},
                              [&] { return Issue(*this, each, bytes); }));
    pending.push_back(
        each.sends ? std::move(started)
                   : WithCopyBack(std::move(started), given, each.tensor));
  }
  if (!on_streams.empty()) {
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective started,
        runner_->StartMessage(
            text, flights, purpose,
            {Place::kStream, on_streams.front()->tensor.device()},
            [&] { return IssueTogether(*this, on_streams); }));
    pending.push_back(std::move(started));
  }
  return PendingCollective::AllOf(std::move(pending));
}

}  // namespace tandem
