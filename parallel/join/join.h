// Join for uneven inputs (torch.distributed.algorithms.Join): ranks train on
// different numbers of batches; one that has ended shadows the others'
// collectives until all have.
//
//   TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
//   while (std::optional<Batch> batch = Next()) {
//     TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
//     ... one iteration: forward, backward, step ...
//   }
//   TANDEM_RETURN_IF_ERROR(join.Finish());
//
// docs/library.md tells more.

#ifndef TANDEM_PARALLEL_JOIN_JOIN_H_
#define TANDEM_PARALLEL_JOIN_JOIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/join/join_hook.h"

namespace tandem {

// Before each iteration one all-reduce over the group tells which ranks have a
// batch, so that the order of collectives does not depend on timing. Then those
// that have one do their iteration, and the others the MainHooks, in the order
// of the joinables, which call the same collectives; when none has one, all do
// the PostHooks.
//
// A Join that goes without Finish (an error in an iteration) aborts the group:
// the others fail at once and not by timeout, and the group is of no more use.
// Not so after an early termination, which comes to all ranks alike.
//
// Fault point: "join", before the all-reduce. Movable; not thread-safe.
class Join {
 public:
  // The joinables, which must outlive this, have one group. InvalidArgument
  // without any, for several groups, and as MakeJoinHook.
  static absl::StatusOr<Join> Begin(const std::vector<Joinable*>& joinables,
                                    const JoinOptions& options = {});
  ~Join();
  Join(Join&&) noexcept;
  Join& operator=(Join&&) = delete;

  // Before each iteration. OutOfRange ("Detected at least one rank that
  // exhausted inputs") where another has ended and early termination is asked
  // for. Errors of Communicator.
  absl::Status NotifyBatch();

  // No more inputs here: shadows until all have ended, then runs the PostHooks.
  // OutOfRange ("Rank r exhausted all inputs") where another has not and early
  // termination is asked for. Errors of Communicator and of hooks.
  absl::Status Finish();

  int64_t iterations() const { return iterations_; }  // of this rank
  int64_t shadowed() const { return shadowed_; }      // of others alone

 private:
  Join(Communicator& group, const JoinOptions& options)
      : group_(&group), options_(options) {}

  // Which ranks have a batch.
  absl::StatusOr<std::vector<bool>> Exchange(bool has_batch);
  void Tell(const std::vector<bool>& active);
  absl::Status Shadow();
  absl::Status End(absl::Status status);

  Communicator* group_;  // null: moved from
  JoinOptions options_;
  std::vector<std::unique_ptr<JoinHook>> hooks_;
  bool ended_ = false;
  int64_t iterations_ = 0;
  int64_t shadowed_ = 0;
};

// Whether this is what throw_on_early_termination gives.
bool IsEarlyTermination(const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_JOIN_JOIN_H_
