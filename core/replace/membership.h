// Membership of a job whose lost ranks are replaced: generations of ranks, and
// the keys of the store by which they are agreed.

#ifndef TANDEM_CORE_REPLACE_MEMBERSHIP_H_
#define TANDEM_CORE_REPLACE_MEMBERSHIP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/store/store.h"

namespace tandem {

// Generations of a job whose lost ranks are replaced: who takes part in one,
// and who in the next. What torchft calls a quorum, as arithmetic.

// The step of a process that has no state of the job yet.
inline constexpr int64_t kNoState = -1;

// A process of a job.
struct Member {
  int rank = 0;             // its number among the ranks that were launched
  int life = 0;             // how many processes of that rank came before
  int64_t step = kNoState;  // steps done in the state that it brings
  // It has what the step after these comes to as well: that was broken off when
  // nothing but the others' gradients was missing.
  bool has_next = false;
};

// The same process, whatever it brings?
bool IsSame(const Member& a, const Member& b);

// All that take part from one change of members to the next. A member's number
// in its groups is its place here.
//
// A replica of the model is on `ranks_of_replica` ranks, one behind the other
// here, of which each has a part of the model: that of its rank's place among
// so many. Where a replica has lost a rank, its others make one with those that
// are left of other replicas, or take no part.
struct Generation {
  int number = 0;
  int ranks_of_replica = 1;
  std::vector<Member> members;  // by replica, and by place in it

  // None: it is no member.
  std::optional<int> PlaceOf(const Member& process) const;
  // The steps of the state that all go on from: the most that a member has
  // done. kNoState: nobody has any.
  int64_t Step() const;
  // The place of the member from whose state the one at `place` goes on: of
  // those that have the same of the model, the first that has the state of
  // Step(). None: nobody has it.
  std::optional<int> Source(int place) const;
  // Whether each part of the model has its source.
  bool HasState() const;
  std::vector<int> Ranks() const;  // in the order of members
};

// The first one: ranks 0 to `ranks` - 1, in their first lives.
Generation FirstGeneration(int ranks, int ranks_of_replica = 1);

struct Death {
  Member process;
  std::string how;  // "killed by signal 9 (SIGKILL)"
};

// What is known when a generation ends.
struct Notices {
  std::vector<Member> ready;    // members that are done with it
  std::vector<Member> waiting;  // started again, and not let in yet
  std::vector<Death> dead;
};

bool IsDead(const Member& process, const Notices& notices);
// Members of `now` that are neither ready nor dead.
std::vector<Member> Missing(const Generation& now, const Notices& notices);
// The members of `notices.waiting` that live and are no members of `now`.
std::vector<Member> Newcomers(const Generation& now, const Notices& notices);
// Whether newcomers make a replica.
bool HasNewReplica(const Generation& now, const Notices& notices);
// Whether members that live make a replica.
bool HasLivingReplica(const Generation& now, const Notices& notices);
// The members that are ready and live, and the newcomers, as far as they make
// whole replicas; without newcomers where the state of a part of the model
// would be left out with them. Requires that nobody is missing.
Generation NextGeneration(const Generation& now, const Notices& notices);

// The form in which they stand on a store: members and deaths one after the
// other, as a list that grows. What stands behind something else is left out.
std::string Encode(const Member& member);
std::string Encode(const Death& death);
std::string Encode(const Generation& generation);
std::vector<Member> DecodeMembers(absl::string_view list);
std::vector<Death> DecodeDeaths(absl::string_view list);
std::optional<Generation> DecodeGeneration(absl::string_view text);

// Membership store of a job whose lost ranks are replaced: what its ranks and
// its launcher tell each other on the store, which outlives all ranks.

// Keys that are only ever written once, lists that only grow, and one record,
// the latest generation, that goes from one value to the next for whoever comes
// first. So every reader decides the same, whenever it looks.
//
// All methods throw what the store throws.
class MembershipStore {
 public:
  // `job`: keys of the job's attempt (Rendezvous::key_prefix).
  explicit MembershipStore(StorePtr job);

  // The latest; none: the job has not begun to train.
  std::optional<Generation> Latest();
  // Makes `next` the latest unless another has followed `now`, and returns what
  // is. `now` may be null: the first one.
  Generation Follow(const Generation* now, const Generation& next);

  void NoteReady(const Generation& now, const Member& member);
  void NoteWaiting(const Member& process);
  void NoteDeath(const Death& death);
  // `now`: whose ready members are meant.
  Notices Read(const Generation& now);

  // The job has done all that it was to do.
  void NoteFinished();
  bool IsFinished();

 private:
  void Append(const std::string& list, const std::string& text);

  StorePtr store_;
};

// What stands before the keys of a generation's groups on the job's store,
// behind `job_prefix`.
std::string PrefixOfGeneration(const std::string& job_prefix, int number);

}  // namespace tandem

#endif  // TANDEM_CORE_REPLACE_MEMBERSHIP_H_
