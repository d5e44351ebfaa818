// Training with uneven inputs: a replica in a Join.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "parallel/ddp/reducer.h"
#include "parallel/ddp/replica_join_hook.h"
#include "parallel/ddp/replica_parameters.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

Replica::ReplicaJoinHook::ReplicaJoinHook(Replica& replica,
                                          const JoinOptions& options)
    : replica_(replica),
      divides_by_initial_(options.divide_by_initial_world_size),
      root_(replica.group_.size() - 1) {
  replica_.join_ = this;
}

Replica::ReplicaJoinHook::~ReplicaJoinHook() {
  replica_.join_ = nullptr;
  replica_.reducer_->set_divisor(replica_.group_.size());
}

void Replica::ReplicaJoinHook::BeginIteration(const std::vector<bool>& active) {
  announced_.reset();
  active_ = static_cast<int>(absl::c_count(active, true));
  root_ = static_cast<int>(active.size()) - 1;
  while (!active[static_cast<size_t>(root_)]) --root_;
  if (!divides_by_initial_) replica_.reducer_->set_divisor(active_);
}

absl::StatusOr<int> Replica::ReplicaJoinHook::CountSynchronising(bool mine) {
  const at::Tensor count = at::full({1}, mine ? 1 : 0, at::kInt);
  TANDEM_RETURN_IF_ERROR(replica_.group_.AllReduceSum(
      count, [] { return "whether gradients are averaged (Join)"; }));
  return *count.const_data_ptr<int32_t>();
}

absl::Status Replica::ReplicaJoinHook::Announce(bool synchronises) {
  if (announced_.has_value() || active_ == 0) {
    return absl::FailedPreconditionError(
        "in a Join an iteration has one forward with gradients: call "
        "NotifyBatch before each");
  }
  announced_ = synchronises;
  TANDEM_ASSIGN_OR_RETURN(const int count, CountSynchronising(synchronises));
  if (count == 0 || count == active_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      count, " of the ", active_,
      " ranks that have inputs average gradients in this iteration, other "
      "ranks do not: use no_sync on all or on none"));
}

absl::Status Replica::ReplicaJoinHook::MainHook() {
  TANDEM_ASSIGN_OR_RETURN(const int count, CountSynchronising(false));
  Reducer& reducer = *replica_.reducer_;
  TANDEM_RETURN_IF_ERROR(reducer.PrepareForForward());
  if (count == 0) return absl::OkStatus();
  if (replica_.options_.broadcast_buffers) {
    TANDEM_RETURN_IF_ERROR(replica_.BroadcastBuffers());
  }
  const absl::Status done = reducer.AddNothing();
  for (FlatBuffer* buffer : replica_.averaged_flat_buffers()) {
    buffer->ZeroGrad();
  }
  return replica_.InStep("shadowed backward", done);
}

// Nobody has done more steps than those who had inputs last.
absl::Status Replica::ReplicaJoinHook::PostHook(bool /*is_last_joiner*/) {
  const at::NoGradGuard no_grad;
  return replica_.InStep("the last rank's model",
                         replica_.parameters_->TakeFrom(root_, [] {
                           return "the values of the last to have inputs";
                         }));
}

absl::Status Replica::ReplicaJoinHook::CheckBackward() const {
  if (announced_ == replica_.reducer_->synchronise()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      announced_.has_value()
          ? "in a Join no_sync goes around forward and backward: ranks that "
            "have ended are told in forward what to take part in"
          : "in a Join an iteration has a forward of this replica before its "
            "backward");
}

absl::StatusOr<std::unique_ptr<JoinHook>> Replica::MakeJoinHook(
    const JoinOptions& options) {
  if (join_ != nullptr) {
    return absl::FailedPreconditionError(
        "this replica is in a Join already, which has not ended");
  }
  if (reducer_->has_hook() && !options.divide_by_initial_world_size) {
    return absl::InvalidArgumentError(
        "divide_by_initial_world_size=false, but the replica has a "
        "communication hook, which divides for itself: leave one of them out");
  }
  std::unique_ptr<JoinHook> hook =
      std::make_unique<ReplicaJoinHook>(*this, options);
  return hook;
}

}  // namespace tandem
