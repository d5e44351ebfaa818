// Job member: a rank of a job that goes on without ranks that die, and takes in
// those that come back.

#ifndef TANDEM_CORE_REPLACE_JOB_MEMBER_H_
#define TANDEM_CORE_REPLACE_JOB_MEMBER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/call_within.h"
#include "core/base/environment.h"
#include "core/launch/launch.h"
#include "core/replace/membership.h"

namespace tandem {

// Lost rank: what a launcher tells a job of a rank that has died and is to be
// replaced.

// Notes that life `life` of `rank` has ended, and how; what other ranks wait
// for with it ends within a second. Returns whether the job goes on without it:
// it has begun to train and not ended, and members of its latest generation
// live that make a whole replica (JobMember). Takes seconds at most; an error
// where the store does not answer.
absl::StatusOr<bool> NoteLostRank(const Launch& rank, int life,
                                  const std::string& how);

// Which life of its rank this process is, from what its launcher set
// (core/launch/rank_process.h). InvalidArgument for what is no number from 0.
absl::StatusOr<int> RankLife(const Environment& env);

// A generation's groups are made by all of its members, and end together: when
// a member dies, by the errors of the others' collectives; when one waits to be
// let in, after a step on which they agree. Then each says that it is ready for
// the next one, and how many steps the state has that it brings; when all have
// said so or are dead, who looks first writes down who takes part in the next:
// as many whole replicas as they make. Who is left over waits until others have
// come back with which it makes one, and is let in with them.
//
// Every method waits `timeout` at most, and returns early with Cancelled when
// an interrupt asks to stop. Not thread-safe.
class JobMember {
 public:
  // `launch`: as this process was started, with a store that its launcher
  // serves; InvalidArgument for another. A replica has `ranks_of_replica` of
  // its ranks; InvalidArgument unless that divides their number.
  static absl::StatusOr<JobMember> Create(const Launch& launch, int life,
                                          std::chrono::milliseconds timeout,
                                          int ranks_of_replica = 1);

  // Takes part in the first generation, of all ranks; of a later life: waits
  // until the others let it in. False: the job has ended meanwhile.
  absl::StatusOr<bool> Enter();
  // The first generation's members have their state, and can go on without one
  // that dies. Nothing in later ones.
  absl::Status NoteBegun();
  // Whether a replica waits to be let in.
  absl::StatusOr<bool> HasWaitingReplica();
  // Whether this generation has ended for another reason than this rank's own:
  // a member is dead, or ready for the next one. Waits `patience` for that.
  absl::StatusOr<bool> HasEnded(std::chrono::milliseconds patience);
  // Takes part in the next generation that has a place for it, with a state of
  // `step` steps (kNoState: with none), and with the next one's as well
  // (Member::has_next). DeadlineExceeded names members that neither came nor
  // died. Unavailable: nobody is left who has a state. False: the job has ended
  // meanwhile.
  absl::StatusOr<bool> GoOn(int64_t step, bool has_next = false);
  // The job has done all that it was to do.
  absl::Status NoteFinished();

  const Generation& generation() const { return generation_; }
  // This rank's place in the generation: numbers and keys of its own.
  Launch LaunchNow() const;
  // The ranks that died since the generation before, and how: "rank 1 (killed
  // by signal 9 (SIGKILL))".
  const std::vector<std::string>& lost() const { return lost_; }
  // The ranks that live and wait for others to make a replica with.
  const std::vector<int>& left_out() const { return left_out_; }

 private:
  JobMember(const Launch& launch, int life, std::chrono::milliseconds timeout,
            int ranks_of_replica, StorePtr store);

  // Calls `look` until it says that it is done.
  absl::StatusOr<bool> Await(std::chrono::milliseconds patience,
                             const std::function<absl::StatusOr<bool>()>& look);
  // Is no member of this generation dead?
  absl::StatusOr<bool> IsWhole() const;
  absl::StatusOr<bool> EnterNext();
  // Until the others let it in: false where the job has ended meanwhile.
  // `why`: what it says of itself where they do not.
  absl::StatusOr<bool> AwaitAdmission(const std::string& why);

  Launch launch_;
  Member me_;
  std::chrono::milliseconds timeout_;
  int ranks_of_replica_ = 1;
  std::shared_ptr<MembershipStore> membership_;
  std::unique_ptr<CallThread> calls_;  // of the store
  Generation generation_;
  std::vector<std::string> lost_;
  std::vector<int> left_out_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_REPLACE_JOB_MEMBER_H_
