// Replica of a model: what DistributedDataParallel is, whatever the type of its
// module.

#ifndef TANDEM_PARALLEL_DDP_REPLICA_H_
#define TANDEM_PARALLEL_DDP_REPLICA_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensors.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/options.h"
#include "parallel/join/join_hook.h"
#include "parallel/optim/flat_buffer_list.h"

namespace torch {
namespace autograd {
struct Node;
}  // namespace autograd
}  // namespace torch

namespace tandem {

class AutocastGuard;
class Communicator;
class Reducer;
class ReplicaParameters;
class StepTimes;
struct DdpLoggingData;

// Guard of torch's no_sync(): while it lives, backward gathers gradients and
// averages nothing. It counts when backward begins, so it may be made around
// forward and backward or around backward alone. Movable.
class NoSyncGuard {
 public:
  explicit NoSyncGuard(std::shared_ptr<Reducer> reducer);
  ~NoSyncGuard();
  NoSyncGuard(NoSyncGuard&&) = default;
  NoSyncGuard& operator=(NoSyncGuard&&) = delete;

 private:
  std::shared_ptr<Reducer> reducer_;
  bool before_ = true;
};

// ReplicaParameters of a module, and the reducer that keeps it alike to those
// of the other ranks. See DistributedDataParallel.
class Replica : public Joinable {
 public:
  ~Replica() override;
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // loss.backward(), with the gradients averaged over the ranks when it
  // returns. One may as well call loss.backward(): the same happens, but an
  // error is thrown (c10::Error), as LibTorch's own are.
  //
  // torch::autograd::grad gathers no gradients, and so averages nothing: what
  // it returns is this rank's own. It may come before Backward (a penalty on
  // gradients).
  //
  // Errors: Reducer::Finish's, and LibTorch's. After one the other ranks fail
  // too, at once, and the group is of no more use.
  absl::Status Backward(const at::Tensor& loss);
  // The same of the loss that `loss` computes, whose errors (a target of the
  // wrong dtype) are returned too.
  absl::Status Backward(absl::FunctionRef<at::Tensor()> loss);

  // torch's no_sync(): for accumulation over several batches.
  NoSyncGuard no_sync() { return NoSyncGuard(reducer_); }

  // Replaces the all-reduce; once, before the first step. The same on every
  // rank.
  absl::Status register_comm_hook(CommunicationHook hook);

  // For an optimizer, clipping, averaging: every trained parameter, and its
  // gradient, is in one of these.
  const FlatBuffers& flat_buffers() const;
  // The buffers of one of options.optimizer_group's groups, for an optimizer of
  // its own; empty: nothing trained is in that group.
  FlatBufferList flat_buffers_of(int64_t group) const;
  // Buffers whose gradients are averaged, and so alike on all ranks; and those
  // of ignored parameters, which are each rank's own.
  FlatBufferList averaged_flat_buffers() const;
  FlatBufferList ignored_flat_buffers() const;
  // No parameter has a gradient any more.
  void ZeroGrad();
  // Every rank's buffers become rank 0's (in a Join those of the last rank that
  // has inputs, as in PyTorch), but for ignored ones. Collective.
  absl::Status BroadcastBuffers();

  // For a Join: an iteration has one forward with gradients, around which goes
  // no_sync, too, on all ranks or none. InvalidArgument for a communication
  // hook without divide_by_initial_world_size; FailedPrecondition in another
  // Join.
  absl::StatusOr<std::unique_ptr<JoinHook>> MakeJoinHook(
      const JoinOptions& options) override;
  Communicator& join_group() override { return group_; }

  // What it has measured of itself (parallel/ddp/logging.h).
  DdpLoggingData logging_data() const;
  const Reducer& reducer() const { return *reducer_; }

 protected:
  Replica(Communicator& group, const DistributedDataParallelOptions& options);

  absl::Status Prepare(const NamedTensors& all_parameters,
                       const NamedTensors& buffers);
  // By activation checkpointing around the whole of it, in its own backward:
  // nothing is to be exchanged then, and no step begins.
  bool IsComputedAgain() const;
  absl::Status BeforeForward();
  // What forward runs in: mixed precision, on the parameters' type of device.
  AutocastGuard Precision() const;
  void AfterForward();
  // `status` with what went on, the step and the rank in front.
  absl::Status InStep(absl::string_view what, const absl::Status& status) const;
  void WatchOutput(const at::Tensor& output);

 private:
  class ReplicaJoinHook;

  void CountForwards();
  void OnBackwardBegun();

  Communicator& group_;
  DistributedDataParallelOptions options_;
  c10::DeviceType device_type_ = c10::kCPU;
  ReplicaJoinHook* join_ = nullptr;  // of the Join that goes on
  int forwards_ = 0;                 // with gradients, since the last backward
  int most_forwards_ = 0;            // before one backward, so far
  std::unique_ptr<ReplicaParameters> parameters_;
  // What gathers the gradients that are averaged.
  std::shared_ptr<const std::vector<torch::autograd::Node*>> accumulators_;
  std::shared_ptr<Reducer> reducer_;
  std::unique_ptr<StepTimes> times_;
  std::unique_ptr<DdpLoggingData> logging_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_REPLICA_H_
