#include "core/comm/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/comm/collective_runner.h"
#include "core/comm/communicator_tensors.h"

namespace tandem {
namespace {

using TensorList = std::vector<at::Tensor>;

// Do all ranks start this? There is no runner in a group of one.
absl::Status Agree(CollectiveRunner* runner, const std::string& what,
                   const FlightOperation& operation, const at::Tensor& tensor,
                   const CollectivePurpose& purpose) {
  if (runner == nullptr) return absl::OkStatus();
  return runner->Agree(what, operation, tensor, purpose);
}

absl::Status CheckRoot(const Communicator& group, const char* operation,
                       int root) {
  if (0 <= root && root < group.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(operation, " of group \"", group.name(),
                   "\": there is no rank ", root, " among ", group.size()));
}

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

// `bytes`: the message's tensor as the backend is given it. Where the host
// reads a device's memory, making it waits for the device, so it is not done
// under IssueMutex().
c10::intrusive_ptr<c10d::Work> Issue(const Communicator& group,
                                     const RankMessage& message,
                                     std::vector<at::Tensor> bytes) {
  c10d::Backend& backend = TensorBackend(group, bytes[0]);
  return message.sends ? backend.send(bytes, message.peer, message.tag)
                       : backend.recv(bytes, message.peer, message.tag);
}

std::vector<at::Tensor> BytesFor(const Communicator& group,
                                 const RankMessage& message) {
  return {ByteView(ForBackend(group, message.tensor))};
}

// Issues messages of streams together.
c10::intrusive_ptr<c10d::Work> IssueTogether(
    const Communicator& group, absl::Span<const RankMessage* const> messages) {
  if (messages.size() == 1) {
    return Issue(group, *messages[0], BytesFor(group, *messages[0]));
  }
  c10d::Backend& backend = TensorBackend(group, messages[0]->tensor);
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

std::string MessageText(const Communicator& group, const RankMessage& message) {
  return absl::StrCat(message.sends ? "send to rank " : "receive from rank ",
                      group.NameOf(message.peer));
}

FlightOperation FlightOfMessage(const RankMessage& message) {
  FlightOperation operation = TensorFlight(message.sends ? "send" : "receive",
                                           message.tensor, message.peer);
  operation.kind = message.sends ? FlightKind::kSend : FlightKind::kReceive;
  operation.tag = message.tag;
  return operation;
}

}  // namespace

int Communicator::NameOf(int rank) const {
  return options_.rank_names.empty() ? rank : options_.rank_names[rank];
}

absl::Status Communicator::Synchronize() {
  return runner_ == nullptr ? absl::OkStatus() : runner_->Synchronize();
}

void Communicator::Abort(const absl::Status& reason) {
  if (runner_ != nullptr) runner_->Abort(reason);
}

absl::Status Communicator::AllReduceSum(at::Tensor tensor,
                                        const CollectivePurpose& purpose) {
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective pending,
      StartAllReduceSum(std::move(tensor), /*factor=*/1, purpose));
  return pending.Wait();
}

absl::StatusOr<PendingCollective> Communicator::StartAllReduceSum(
    at::Tensor tensor, double factor, const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckSummand(*this, "all-reduce", tensor));
  const FlightOperation operation = TensorFlight("all-reduce", tensor);
  TANDEM_RETURN_IF_ERROR(
      Agree(runner_.get(), operation.name, operation, tensor, purpose));
  if (tensor.numel() == 0) return PendingCollective();
  c10d::AllreduceOptions options;
  Multiply(*this, factor, tensor, &options.reduceOp);
  if (size_ == 1) return PendingCollective();
  TensorList tensors = {ForBackend(*this, tensor)};
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective pending,
      runner_->Start(operation, purpose, RunPlace(tensors[0]), [&] {
        return TensorBackend(*this, tensors[0]).allreduce(tensors, options);
      }));
  return WithCopyBack(std::move(pending), tensors[0], tensor);
}

absl::StatusOr<PendingCollective> Communicator::StartReduceSum(
    at::Tensor tensor, int root, double factor,
    const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckSummand(*this, "reduce", tensor));
  TANDEM_RETURN_IF_ERROR(CheckRoot(*this, "reduce", root));
  const FlightOperation operation = TensorFlight("reduce", tensor, root);
  TANDEM_RETURN_IF_ERROR(Agree(runner_.get(),
                               absl::StrCat("reduce to rank ", NameOf(root)),
                               operation, tensor, purpose));
  if (tensor.numel() == 0) return PendingCollective();
  c10d::ReduceOptions options;
  options.rootRank = root;
  Multiply(*this, factor, tensor, &options.reduceOp);
  if (size_ == 1) return PendingCollective();
  TensorList tensors = {ForBackend(*this, tensor)};
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective pending,
      runner_->Start(operation, purpose, RunPlace(tensors[0]), [&] {
        return TensorBackend(*this, tensors[0]).reduce(tensors, options);
      }));
  return WithCopyBack(std::move(pending), tensors[0], tensor);
}

absl::Status Communicator::Broadcast(at::Tensor tensor, int root,
                                     const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckTensor(*this, "broadcast", tensor));
  TANDEM_RETURN_IF_ERROR(CheckRoot(*this, "broadcast", root));
  const FlightOperation operation = TensorFlight("broadcast", tensor, root);
  TANDEM_RETURN_IF_ERROR(
      Agree(runner_.get(), absl::StrCat("broadcast from rank ", NameOf(root)),
            operation, tensor, purpose));
  if (size_ == 1 || tensor.numel() == 0) return absl::OkStatus();
  const at::Tensor given = ForBackend(*this, tensor);
  TensorList tensors = {ByteView(given)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective pending,
      runner_->Start(operation, purpose, RunPlace(given), [&] {
        return TensorBackend(*this, given).broadcast(tensors, options);
      }));
  return WithCopyBack(std::move(pending), given, tensor).Wait();
}

absl::StatusOr<TensorList> Communicator::AllGather(
    const at::Tensor& tensor, const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckTensor(*this, "all-gather", tensor));
  const FlightOperation operation = TensorFlight("all-gather", tensor);
  TANDEM_RETURN_IF_ERROR(
      Agree(runner_.get(), operation.name, operation, tensor, purpose));
  const at::Tensor mine = tensor.detach();
  TensorList all;
  for (int r = 0; r < size_; ++r) all.push_back(at::empty_like(mine));
  if (size_ == 1 || mine.numel() == 0) {
    for (at::Tensor& one : all) one.copy_(mine);
    return all;
  }
  TensorList in = {ByteView(ForBackend(*this, mine))};
  TensorList given;
  std::vector<TensorList> out(1);
  for (const at::Tensor& one : all) {
    given.push_back(ForBackend(*this, one));
    out[0].push_back(ByteView(given.back()));
  }
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective pending,
      runner_->Start(operation, purpose, RunPlace(in[0]), [&] {
        return TensorBackend(*this, in[0]).allgather(out, in);
      }));
  for (int r = 0; r < size_; ++r) {
    pending = WithCopyBack(std::move(pending), given[r], all[r]);
  }
  TANDEM_RETURN_IF_ERROR(pending.Wait());
  return all;
}

absl::StatusOr<std::vector<std::string>> Communicator::AllGatherString(
    const std::string& mine, const CollectivePurpose& purpose) {
  // The lengths first, then all strings in blocks of the longest.
  TANDEM_ASSIGN_OR_RETURN(
      TensorList lengths,
      AllGather(at::full({1}, static_cast<int64_t>(mine.size()), at::kLong),
                purpose));
  int64_t longest = 0;
  for (const at::Tensor& length : lengths) {
    longest = std::max(longest, *length.const_data_ptr<int64_t>());
  }
  at::Tensor block = at::zeros({longest}, at::kByte);
  if (!mine.empty()) std::memcpy(block.data_ptr(), mine.data(), mine.size());
  TANDEM_ASSIGN_OR_RETURN(TensorList blocks, AllGather(block, purpose));
  std::vector<std::string> strings;
  for (int r = 0; r < size_; ++r) {
    strings.emplace_back(static_cast<const char*>(blocks[r].const_data_ptr()),
                         *lengths[r].const_data_ptr<int64_t>());
  }
  return strings;
}

absl::Status Communicator::Barrier(const CollectivePurpose& purpose) {
  if (size_ == 1) return absl::OkStatus();
  const FlightOperation operation = TensorFlight("barrier", at::Tensor());
  TANDEM_RETURN_IF_ERROR(
      Agree(runner_.get(), operation.name, operation, at::Tensor(), purpose));
  using Place = CollectiveRunner::Place;
  return runner_->Run(operation, purpose, {Place::kHost}, [&] {
    return process_group_->getDefaultBackend()->barrier();
  });
}

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
      absl::StrAppend(&text, text.empty() ? "" : ", ",
                      MessageText(*this, each));
      on_streams.push_back(&each);
      flights.push_back(FlightOfMessage(each));
      continue;
    }
    const at::Tensor given = ForBackend(*this, each.tensor);
    const std::vector<at::Tensor> bytes = {ByteView(given)};
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective started,
        runner_->StartMessage(MessageText(*this, each), {FlightOfMessage(each)},
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
