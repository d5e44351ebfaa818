#include "core/replace/job_member.h"

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/health/group_member.h"
#include "core/health/job_notes.h"
#include "core/program/interrupt.h"
#include "core/replace/membership.h"
#include "core/store/server.h"
#include "core/store/store.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(5);

// To the groups of the latest generation. One that is written down after this
// was read sees the death on the store: it stands there already.
void TellGroups(const StorePtr& store, const std::string& job_prefix,
                const Generation& latest, const Death& death) {
  const std::optional<int> place = latest.PlaceOf(death.process);
  if (!place) return;
  FailureNote note;
  note.kind = FailureNote::Kind::kDied;
  note.rank = *place;
  note.text = death.how;
  const StorePtr groups =
      WithPrefix(store, PrefixOfGeneration(job_prefix, latest.number));
  const StorePtr world = WithPrefix(groups, kWorldName);
  NoteInJob(*world, note);
  // Nobody waits for the dead one to hear of it.
  AcknowledgeNotes(*world, *place, /*others=*/{}, std::chrono::milliseconds(0));
}

bool Note(const StorePtr& store, const std::string& job_prefix,
          const Death& death) {
  MembershipStore membership(WithPrefix(store, job_prefix));
  membership.NoteDeath(death);
  const std::optional<Generation> latest = membership.Latest();
  if (!latest || membership.IsFinished()) return false;
  TellGroups(store, job_prefix, *latest, death);
  return HasLivingReplica(*latest, membership.Read(*latest));
}

}  // namespace

absl::StatusOr<bool> NoteLostRank(const Launch& rank, int life,
                                  const std::string& how) {
  const Rendezvous& where = rank.rendezvous;
  TANDEM_ASSIGN_OR_RETURN(const StorePtr store,
                          ConnectTcpStore(where.host, where.port, kPatience));
  const Death death = {{rank.rank, life, kNoState}, how};
  return CallWithin<bool>(kPatience, [store, prefix = where.key_prefix, death] {
    return Note(store, prefix, death);
  });
}

namespace {

using std::chrono::milliseconds;

// Between two looks at the store; a look is a handful of its operations.
constexpr milliseconds kInterval(10);
// What a store that lives needs to answer.
constexpr milliseconds kAnswerTime = std::chrono::seconds(10);

std::string MemberNames(const std::vector<Member>& members) {
  return absl::StrJoin(members, ", ", [](std::string* out, const Member& each) {
    absl::StrAppend(out, "rank ", each.rank);
  });
}

// The members of `before` that were lost.
std::vector<std::string> Lost(const Generation& before,
                              const Notices& notices) {
  std::vector<std::string> lost;
  for (const Death& death : notices.dead) {
    if (!before.PlaceOf(death.process)) continue;
    lost.push_back(
        absl::StrCat("rank ", death.process.rank, " (", death.how, ")"));
  }
  return lost;
}

}  // namespace

absl::StatusOr<int> RankLife(const Environment& env) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<int> life,
                          env.GetInt("TANDEM_RANK_LIFE"));
  if (life.value_or(0) >= 0) return life.value_or(0);
  return absl::InvalidArgumentError(absl::StrCat(
      "the environment says TANDEM_RANK_LIFE=", *life,
      ", but lives count from 0: leave it to the launcher, which sets it"));
}

JobMember::JobMember(const Launch& launch, int life, milliseconds timeout,
                     int ranks_of_replica, StorePtr store)
    : launch_(launch),
      me_{launch.rank, life, kNoState},
      timeout_(timeout),
      ranks_of_replica_(ranks_of_replica),
      membership_(std::make_shared<MembershipStore>(std::move(store))),
      calls_(std::make_unique<CallThread>()) {}

absl::StatusOr<JobMember> JobMember::Create(const Launch& launch, int life,
                                            milliseconds timeout,
                                            int ranks_of_replica) {
  const Rendezvous& where = launch.rendezvous;
  if (!where.served_by_launcher) {
    return absl::InvalidArgumentError(
        "ranks are replaced by the launcher that serves their store, but this "
        "one has none");
  }
  if (ranks_of_replica < 1 || launch.world_size % ranks_of_replica != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a replica on ", ranks_of_replica, " of ", launch.world_size,
        " ranks: expected a number that divides theirs"));
  }
  TANDEM_ASSIGN_OR_RETURN(
      StorePtr store,
      ConnectTcpStore(where.host, where.port, timeout, StoreServer::kLauncher));
  return JobMember(launch, life, timeout, ranks_of_replica,
                   WithPrefix(std::move(store), where.key_prefix));
}

absl::StatusOr<bool> JobMember::Await(
    milliseconds patience, const std::function<absl::StatusOr<bool>()>& look) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const absl::StatusOr<bool> done = calls_->Within<bool>(kAnswerTime, look);
    if (!done.ok()) {
      return Annotate(done.status(),
                      "the job's store, of which ranks are there");
    }
    if (*done) return true;
    if (InterruptSignal() != 0) return InterruptError();
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kInterval);
  }
}

// A launcher that notes a death tells the groups of the generation that it
// finds written down; of a later one, every member finds the death here.
absl::StatusOr<bool> JobMember::IsWhole() const {
  return calls_->Within<bool>(
      kAnswerTime, [membership = membership_, now = generation_] {
        const Notices notices = membership->Read(now);
        return absl::c_none_of(now.members, [&](const Member& each) {
          return IsDead(each, notices);
        });
      });
}

absl::StatusOr<bool> JobMember::AwaitAdmission(const std::string& why) {
  struct Seen {
    std::optional<Generation> mine;
    bool noted = false;
  };
  const auto seen = std::make_shared<Seen>();
  TANDEM_ASSIGN_OR_RETURN(
      const bool came,
      Await(timeout_, [seen, membership = membership_, me = me_]() -> bool {
        if (!std::exchange(seen->noted, true)) membership->NoteWaiting(me);
        if (membership->IsFinished()) return true;
        std::optional<Generation> latest = membership->Latest();
        if (!latest || !latest->PlaceOf(me)) return false;
        seen->mine = std::move(latest);
        return true;
      }));
  if (!came) {
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", me_.rank, " ", why));
  }
  if (!seen->mine) return false;
  generation_ = *std::move(seen->mine);
  return true;
}

absl::StatusOr<bool> JobMember::Enter() {
  if (me_.life == 0) {
    generation_ = FirstGeneration(launch_.world_size, ranks_of_replica_);
    return true;
  }
  TANDEM_ASSIGN_OR_RETURN(
      const bool is_in,
      AwaitAdmission(
          "was started again, but the other ranks have not let it in"));
  if (!is_in) return false;
  TANDEM_ASSIGN_OR_RETURN(const bool whole, IsWhole());
  if (whole) return true;
  return GoOn(kNoState);
}

absl::Status JobMember::NoteBegun() {
  if (generation_.number > 0) return absl::OkStatus();
  return calls_
      ->Within<bool>(kAnswerTime,
                     [membership = membership_, first = generation_] {
                       membership->Follow(nullptr, first);
                       return true;
                     })
      .status();
}

absl::StatusOr<bool> JobMember::HasWaitingReplica() {
  return calls_->Within<bool>(
      kAnswerTime, [membership = membership_, now = generation_] {
        return HasNewReplica(now, membership->Read(now));
      });
}

absl::StatusOr<bool> JobMember::HasEnded(milliseconds patience) {
  return Await(
      patience, [membership = membership_, now = generation_]() -> bool {
        return Missing(now, membership->Read(now)).size() < now.members.size();
      });
}

absl::StatusOr<bool> JobMember::GoOn(int64_t step, bool has_next) {
  me_.step = step;
  me_.has_next = has_next;
  lost_.clear();
  for (;;) {
    TANDEM_ASSIGN_OR_RETURN(const bool goes_on, EnterNext());
    if (!goes_on) return false;
    TANDEM_ASSIGN_OR_RETURN(const bool whole, IsWhole());
    if (whole) return true;
  }
}

absl::StatusOr<bool> JobMember::EnterNext() {
  struct Seen {
    Notices notices;
    std::optional<Generation> next;
    bool noted = false;
  };
  const auto seen = std::make_shared<Seen>();
  TANDEM_ASSIGN_OR_RETURN(const bool decided,
                          Await(timeout_,
                                [seen, membership = membership_,
                                 now = generation_, me = me_]() -> bool {
                                  if (!std::exchange(seen->noted, true))
                                    membership->NoteReady(now, me);
                                  seen->notices = membership->Read(now);
                                  if (membership->IsFinished()) return true;
                                  if (!Missing(now, seen->notices).empty())
                                    return false;
                                  seen->next = membership->Follow(
                                      &now, NextGeneration(now, seen->notices));
                                  return true;
                                }));
  if (!decided) {
    return absl::DeadlineExceededError(absl::StrCat(
        "cannot go on with the ranks that are left: not heard of: ",
        MemberNames(Missing(generation_, seen->notices)),
        ", whose launcher does not say either that it has died"));
  }
  if (!seen->next) return false;
  for (std::string& each : Lost(generation_, seen->notices)) {
    lost_.push_back(std::move(each));
  }
  left_out_.clear();
  const Generation before = std::exchange(generation_, *std::move(seen->next));
  for (const Member& each : before.members) {
    if (IsDead(each, seen->notices) || generation_.PlaceOf(each)) continue;
    left_out_.push_back(each.rank);
  }
  if (generation_.members.empty()) {
    return absl::UnavailableError("no replica of the model is left whole");
  }
  if (!generation_.PlaceOf(me_)) {
    // What it brought is old by then.
    me_.step = kNoState;
    me_.has_next = false;
    lost_.clear();
    left_out_.clear();
    return AwaitAdmission(
        "waits for others to make a replica with, which have not come back");
  }
  if (!generation_.HasState()) {
    return absl::UnavailableError("nobody is left who has the job's state");
  }
  return true;
}

absl::Status JobMember::NoteFinished() {
  return calls_
      ->Within<bool>(kAnswerTime,
                     [membership = membership_] {
                       membership->NoteFinished();
                       return true;
                     })
      .status();
}

Launch JobMember::LaunchNow() const {
  Launch launch = launch_;
  launch.rank = generation_.PlaceOf(me_).value_or(0);
  launch.world_size = static_cast<int>(generation_.members.size());
  launch.rendezvous.key_prefix =
      PrefixOfGeneration(launch_.rendezvous.key_prefix, generation_.number);
  return launch;
}

}  // namespace tandem
