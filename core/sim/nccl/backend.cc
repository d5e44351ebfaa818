#include "core/sim/nccl/backend.h"

#include <c10/util/Exception.h>
#include <glog/logging.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/sim/calls/call_aliases.h"
#include "core/sim/nccl/deadlock_watch.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

using Tensors = NcclBackend::Tensors;
using c10d::OpType;

Tensors HostAliases(const Tensors& tensors) {
  Tensors aliases;
  for (const at::Tensor& each : tensors) aliases.push_back(HostAlias(each));
  return aliases;
}

// "all-reduce of 5 Float, sum".
std::string Text(const char* what, const at::Tensor& tensor,
                 const std::string& detail = "") {
  return absl::StrCat(what, " of ", tensor.numel(), " ",
                      c10::toString(tensor.scalar_type()),
                      detail.empty() ? "" : ", ", detail);
}

NcclPart Collective(std::string text,
                    std::function<NcclBackend::WorkPtr(c10d::Backend&)> start) {
  NcclPart part;
  part.collective = std::move(text);
  part.start = std::move(start);
  return part;
}

NcclPart MessagePart(bool sends, const at::Tensor& tensor, int peer) {
  NcclPart part;
  part.sends = sends;
  part.peer = peer;
  part.bytes = HostAlias(tensor).view({-1}).view(at::kByte);
  return part;
}

// By rank; without splits in equal parts.
Tensors SplitRows(const at::Tensor& tensor, std::vector<int64_t> splits,
                  int ranks) {
  if (splits.empty()) {
    TORCH_CHECK_WITH(ValueError, tensor.size(0) % ranks == 0, tensor.size(0),
                     " rows cannot be divided among ", ranks, " ranks");
    splits.assign(static_cast<size_t>(ranks), tensor.size(0) / ranks);
  }
  TORCH_CHECK_WITH(ValueError, splits.size() == static_cast<size_t>(ranks),
                   "one split for each of ", ranks, " ranks is needed");
  return tensor.split_with_sizes(splits);
}

// NCCL takes the factor of a sum in the tensor's dtype.
template <typename Options>
Options WithFactorIn(c10::ScalarType dtype, Options options) {
  const auto* const sum = dynamic_cast<const c10d::PreMulSumSupplement*>(
      options.reduceOp.supplement_.get());
  if (sum != nullptr && !sum->tensor_factor.defined()) {
    options.reduceOp =
        c10d::makePreMulSum(RoundedTo(dtype, sum->double_factor));
  }
  return options;
}

// Groups are the thread's, whichever communicators they are of.
thread_local int open_groups = 0;

void CheckNoGroupIsOpen() {
  TORCH_CHECK_WITH(
      DistBackendError, open_groups == 0,
      "this thread has left a group open (startCoalescing): NCCL would not "
      "begin what it starts on any communicator");
}

std::string ReductionName(const c10d::ReduceOp& op) {
  return absl::StrCat("operator ", static_cast<int>(op.op_));
}

}  // namespace

absl::Status CheckStreams() {
  if (IsAsynchronous()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the backend sim_nccl puts its work on streams, and the simulated "
      "devices of this process have none: make them asynchronous "
      "(--sim_async, SimOptions::async)");
}

absl::StatusOr<c10::intrusive_ptr<NcclBackend>> NcclBackend::Create(
    const StorePtr& store, int rank, int size, NcclOptions options) {
  TANDEM_RETURN_IF_ERROR(CheckStreams());
  auto backend =
      c10::make_intrusive<NcclBackend>(store, rank, size, std::move(options));
  for (const c10::Device& device : backend->options_.devices) {
    TANDEM_RETURN_IF_ERROR(backend->Connect(device));
  }
  return backend;
}

NcclBackend::NcclBackend(StorePtr store, int rank, int size,
                         NcclOptions options)
    : Backend(rank, size),
      store_(std::move(store)),
      options_(std::move(options)) {
  if (options_.devices.size() == 1) setBoundDeviceId(options_.devices[0]);
}

NcclBackend::~NcclBackend() {
  LOG_IF(WARNING, was_used_ && !is_shut_down_ && aborted_.empty())
      << "a group of NCCL, " << options_.name
      << ", was not shut down: on a GPU its memory and its threads may stay";
  for (const auto& each : communicators_) {
    DeadlockWatch::OfProcess().Remove(each.second.get());
  }
}

absl::Status NcclBackend::Connect(c10::Device device) {
  const std::string name = absl::StrCat(
      options_.name,
      communicators_.empty() ? "" : absl::StrCat(" #", communicators_.size()));
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat("sim_nccl/", communicators_.size()), store_);
  TANDEM_ASSIGN_OR_RETURN(auto wire, options_.make_wire(store));
  auto communicator = std::make_unique<NcclCommunicator>(
      NcclCommunicator::Options{name, getRank(), options_.rank_names, device},
      std::move(wire));
  DeadlockWatch::OfProcess().Add(communicator.get(), options_.job);
  std::lock_guard<std::mutex> lock(mutex_);
  if (!aborted_.empty()) communicator->Abort(aborted_);
  communicators_[device.index()] = std::move(communicator);
  return absl::OkStatus();
}

NcclCommunicator& NcclBackend::DeviceCommunicator(c10::Device device) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = communicators_.find(device.index());
    if (found != communicators_.end()) return *found->second;
  }
  const absl::Status connected = Connect(device);
  TORCH_CHECK_WITH(DistBackendError, connected.ok(),
                   std::string(connected.message()));
  return *communicators_.at(device.index());
}

NcclBackend::WorkPtr NcclBackend::Launch(OpType type,
                                         std::vector<NcclPart> parts,
                                         const Tensors& tensors) {
  for (const at::Tensor& each : tensors) {
    TORCH_CHECK_WITH(
        ValueError,
        each.device() == tensors.front().device() &&
            each.device().type() == c10::DeviceType::PrivateUse1,
        "sim_nccl works on tensors of one simulated device, not on ",
        each.device().str());
    TORCH_CHECK_WITH(ValueError, each.is_contiguous(),
                     "sim_nccl needs contiguous tensors");
  }
  if (group_.has_value()) {
    TORCH_CHECK_WITH(
        ValueError,
        group_->tensors.empty() ||
            group_->tensors.front().device() == tensors.front().device(),
        "a group of sim_nccl has tensors of one device");
    group_->parts.insert(group_->parts.end(), parts.begin(), parts.end());
    group_->tensors.insert(group_->tensors.end(), tensors.begin(),
                           tensors.end());
    return nullptr;
  }
  CheckNoGroupIsOpen();
  was_used_ = true;
  return DeviceCommunicator(tensors.front().device())
      .Launch(type, std::move(parts), tensors);
}

NcclBackend::WorkPtr NcclBackend::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  auto part = Collective(
      Text("all-reduce", tensors.at(0), ReductionName(options.reduceOp)),
      [on = HostAliases(tensors),
       options = WithFactorIn(tensors.at(0).scalar_type(), options)](
          c10d::Backend& wire) mutable { return wire.allreduce(on, options); });
  return Launch(OpType::ALLREDUCE, {part}, tensors);
}

NcclBackend::WorkPtr NcclBackend::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& options) {
  auto part = Collective(
      Text("broadcast", tensors.at(0),
           absl::StrCat("from rank ", options.rootRank)),
      [on = HostAliases(tensors), options](c10d::Backend& wire) mutable {
        return wire.broadcast(on, options);
      });
  return Launch(OpType::BROADCAST, {part}, tensors);
}

NcclBackend::WorkPtr NcclBackend::reduce(Tensors& tensors,
                                         const c10d::ReduceOptions& options) {
  auto part = Collective(
      Text("reduce", tensors.at(0),
           absl::StrCat(ReductionName(options.reduceOp), " to rank ",
                        options.rootRank)),
      [on = HostAliases(tensors),
       options = WithFactorIn(tensors.at(0).scalar_type(), options)](
          c10d::Backend& wire) mutable { return wire.reduce(on, options); });
  return Launch(OpType::REDUCE, {part}, tensors);
}

NcclBackend::WorkPtr NcclBackend::allgather(
    std::vector<Tensors>& outputs, Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  auto part =
      Collective(Text("all-gather", inputs.at(0)),
                 [out = HostAliases(outputs.at(0)), in = HostAliases(inputs),
                  options](c10d::Backend& wire) mutable {
                   std::vector<Tensors> outs = {out};
                   return wire.allgather(outs, in, options);
                 });
  Tensors all = outputs[0];
  all.push_back(inputs[0]);
  return Launch(OpType::ALLGATHER, {part}, all);
}

NcclBackend::WorkPtr NcclBackend::all_gather_single(
    at::Tensor& output, at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  auto part = Collective(Text("all-gather", input),
                         [out = HostAlias(output), in = HostAlias(input),
                          options](c10d::Backend& wire) mutable {
                           return wire.all_gather_single(out, in, options);
                         });
  return Launch(OpType::_ALLGATHER_BASE, {part}, {output, input});
}

NcclBackend::WorkPtr NcclBackend::reduce_scatter_single(
    at::Tensor& output, at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  auto part =
      Collective(Text("reduce-scatter", input, ReductionName(options.reduceOp)),
                 [out = HostAlias(output), in = HostAlias(input),
                  options = WithFactorIn(input.scalar_type(), options)](
                     c10d::Backend& wire) mutable {
                   return wire.reduce_scatter_single(out, in, options);
                 });
  return Launch(OpType::_REDUCE_SCATTER_BASE, {part}, {output, input});
}

// What this rank keeps is copied before the streams meet.
NcclBackend::WorkPtr NcclBackend::all_to_all_single(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits,
    const c10d::AllToAllOptions& /*options*/) {
  const Tensors received = SplitRows(output, output_splits, getSize());
  const Tensors sent = SplitRows(input, input_splits, getSize());
  TORCH_CHECK_WITH(ValueError, output.scalar_type() == input.scalar_type(),
                   "sim_nccl does not convert what it moves");
  std::vector<NcclPart> parts;
  for (int peer = 0; peer < getSize(); ++peer) {
    if (peer == getRank()) {
      received[peer].copy_(sent[peer]);
      continue;
    }
    if (sent[peer].numel() > 0) {
      parts.push_back(MessagePart(/*sends=*/true, sent[peer], peer));
    }
    if (received[peer].numel() > 0) {
      parts.push_back(MessagePart(/*sends=*/false, received[peer], peer));
    }
  }
  return Launch(OpType::ALLTOALL_BASE, std::move(parts), {output, input});
}

NcclBackend::WorkPtr NcclBackend::barrier(const c10d::BarrierOptions& options) {
  const std::optional<c10::Device> device =
      options.device.has_value() ? options.device : getBoundDeviceId();
  TORCH_CHECK_WITH(ValueError, device.has_value(),
                   "a barrier of sim_nccl must know its device");
  CheckNoGroupIsOpen();
  auto part = Collective("barrier", [](auto& wire) { return wire.barrier(); });
  return DeviceCommunicator(*device).Launch(OpType::BARRIER, {part}, {});
}

NcclBackend::WorkPtr NcclBackend::Message(bool sends, Tensors& tensors,
                                          int peer) {
  return Launch(sends ? OpType::SEND : OpType::RECV,
                {MessagePart(sends, tensors.at(0), peer)}, tensors);
}

NcclBackend::WorkPtr NcclBackend::send(Tensors& tensors, int to, int /*tag*/) {
  return Message(/*sends=*/true, tensors, to);
}

NcclBackend::WorkPtr NcclBackend::recv(Tensors& tensors, int from,
                                       int /*tag*/) {
  return Message(/*sends=*/false, tensors, from);
}

void NcclBackend::startCoalescing() {
  TORCH_CHECK(!group_.has_value(), "a group has been started before");
  group_.emplace();
  ++open_groups;
}

NcclBackend::WorkPtr NcclBackend::endCoalescing() {
  TORCH_CHECK(group_.has_value(), "no group has been started");
  Group group = *std::exchange(group_, std::nullopt);
  --open_groups;
  TORCH_CHECK(!group.tensors.empty(), "a group of nothing");
  was_used_ = true;
  return DeviceCommunicator(group.tensors.front().device())
      .Launch(OpType::COALESCED, std::move(group.parts),
              std::move(group.tensors));
}

void NcclBackend::Abort(const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_.empty()) aborted_ = reason;
  for (const auto& each : communicators_) each.second->Abort(reason);
}

}  // namespace sim
}  // namespace tandem
