// Join hook of a replica: DistributedDataParallel with uneven inputs.

#ifndef TANDEM_PARALLEL_DDP_REPLICA_JOIN_HOOK_H_
#define TANDEM_PARALLEL_DDP_REPLICA_JOIN_HOOK_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/ddp/replica.h"
#include "parallel/join/join_hook.h"

namespace tandem {

// An iteration's collectives, in their order: whether gradients are averaged
// in it, then those of forward (buckets are rebuilt, buffers broadcast), then
// those of backward.
class Replica::ReplicaJoinHook : public JoinHook {
 public:
  ReplicaJoinHook(Replica& replica, const JoinOptions& options);
  ~ReplicaJoinHook() override;

  void BeginIteration(const std::vector<bool>& active) override;
  absl::Status MainHook() override;
  absl::Status PostHook(bool is_last_joiner) override;

  // A forward begins whose gradients will be averaged, or not. Collective.
  // FailedPrecondition for a second one in an iteration, InvalidArgument where
  // ranks differ.
  absl::Status Announce(bool synchronises);
  // A backward begins. FailedPrecondition where its gradients are averaged and
  // no forward has announced that, or the other way round.
  absl::Status CheckBackward() const;

  // The last rank of those that have inputs, or had them last.
  int root() const { return root_; }

 private:
  absl::StatusOr<int> CountSynchronising(bool mine);

  Replica& replica_;
  const bool divides_by_initial_;
  int root_;
  int active_ = 0;  // ranks
  std::optional<bool> announced_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_REPLICA_JOIN_HOOK_H_
