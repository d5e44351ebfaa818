// Join hooks: what a class does to take part in training with uneven inputs
// (torch.distributed.algorithms.Joinable and JoinHook).

#ifndef TANDEM_PARALLEL_JOIN_JOIN_HOOK_H_
#define TANDEM_PARALLEL_JOIN_JOIN_HOOK_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

class Communicator;

struct JoinOptions {
  // Off: no collective, no shadowing; for inputs that are known to be even.
  bool enable = true;
  // Ranks do not go on without one that has ended: all of them get an error
  // (IsEarlyTermination), after as many iterations.
  bool throw_on_early_termination = false;
  // DistributedDataParallel divides gradients by the number of ranks; else by
  // that of those that still have inputs.
  bool divide_by_initial_world_size = true;
};

// What a rank does for one Joinable. Made when a Join begins, gone with it.
class JoinHook {
 public:
  virtual ~JoinHook() = default;

  // An iteration begins: which ranks have a batch for it, by rank; one at
  // least. On every rank, before the iteration or MainHook.
  virtual void BeginIteration(const std::vector<bool>& active) {
    static_cast<void>(active);
  }

  // This rank has no more inputs, others have: calls the collectives that they
  // call in one iteration, in the same order, so that it changes nothing.
  virtual absl::Status MainHook() { return absl::OkStatus(); }

  // All ranks have ended. `is_last_joiner`: none has done more iterations than
  // this one. May be collective.
  virtual absl::Status PostHook(bool is_last_joiner) {
    static_cast<void>(is_last_joiner);
    return absl::OkStatus();
  }
};

// A class whose iterations have collectives.
class Joinable {
 public:
  virtual ~Joinable() = default;

  // InvalidArgument for options that it cannot follow.
  virtual absl::StatusOr<std::unique_ptr<JoinHook>> MakeJoinHook(
      const JoinOptions& options) = 0;

  // The group of those that join together.
  virtual Communicator& join_group() = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_JOIN_JOIN_HOOK_H_
