#include "core/health/collective_check.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/call_within.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/health/group_failures.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How often a waiting rank looks whether another has failed.
constexpr milliseconds kSlice(200);
// What a store that answers needs beyond the timeout to say that it has passed.
constexpr milliseconds kGrace = std::chrono::seconds(2);
// How long ranks that disagree wait for each other to have seen it: one of them
// may serve the store. How long one that leaves waits for the store.
constexpr milliseconds kFarewell = std::chrono::seconds(2);

std::vector<std::string> Keys(absl::string_view what, int64_t sequence,
                              int size) {
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) {
    keys.push_back(absl::StrCat(what, "/", sequence, "/", r));
  }
  return keys;
}

std::string BytesAsText(const std::vector<uint8_t>& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

milliseconds TimeTo(Clock::time_point deadline) {
  return std::max(milliseconds(1),
                  std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

std::string KeyOfLeaving(int rank) { return absl::StrCat("left/", rank); }

bool NoteLeaving(const GroupMember& member) {
  member.store->set(KeyOfLeaving(member.rank), std::string("1"));
  return true;
}

// Checks that have not been destroyed. A process that calls exit() destroys
// none of them, and leaves their groups all the same.
class LivingChecks {
 public:
  static LivingChecks& OfProcess() {
    static auto* const checks = new LivingChecks;  // what exit() calls needs it
    return *checks;
  }

  void Add(const CollectiveCheck* check, const GroupMember& member) {
    const std::lock_guard<std::mutex> lock(mutex_);
    groups_.insert_or_assign(check, Group{member, getpid()});
  }
  void Remove(const CollectiveCheck* check) {
    const std::lock_guard<std::mutex> lock(mutex_);
    groups_.erase(check);
  }

 private:
  struct Group {
    GroupMember member;
    pid_t process = 0;  // a forked child has none of its parent's
  };

  LivingChecks() {
    std::atexit([] { OfProcess().LeaveAll(); });
  }

  void LeaveAll() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [check, group] : groups_) {
      if (group.process != getpid()) continue;
      const bool noted = CallWithin<bool>(kFarewell, [member = group.member] {
                           return NoteLeaving(member);
                         }).ok();
      if (!noted) return;  // nor would the store answer for the next one
    }
  }

  std::mutex mutex_;
  std::map<const CollectiveCheck*, Group> groups_;
};

// Why a rank whose key, by rank, is not there will not set it; throws what the
// store throws.
absl::Status CheckAllMayCome(const GroupMember& member,
                             const std::vector<std::string>& keys,
                             const CollectiveCheck::Presence& presence) {
  c10d::Store& store = *member.store;
  for (int r = 0; r < member.size; ++r) {
    // In this order: whoever has left has set its keys before.
    if (!store.check({KeyOfLeaving(r)}) || store.check({keys[r]})) continue;
    return absl::UnavailableError(
        absl::StrCat("rank ", member.NameOf(r), " left the group"));
  }
  // Perhaps because of that one.
  if (HasFailedRank(store)) {
    return absl::UnavailableError("another rank has failed");
  }
  if (presence == nullptr) return absl::OkStatus();
  const absl::Status present = presence();
  // It may have come before it went.
  const bool is_missed = !present.ok() && !store.check(keys);
  return is_missed ? present : absl::OkStatus();
}

// True when all keys have come; false after `timeout`; Unavailable when one
// will not come.
absl::StatusOr<bool> AwaitAll(const GroupMember& member,
                              const std::vector<std::string>& keys,
                              milliseconds timeout,
                              const CollectiveCheck::Presence& presence) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    const absl::Status status = CatchTorch(
        [&] { member.store->wait(keys, std::min(kSlice, TimeTo(deadline))); });
    if (status.ok()) return true;
    if (!absl::IsDeadlineExceeded(status)) return status;
    TANDEM_RETURN_IF_ERROR(CheckAllMayCome(member, keys, presence));
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace

absl::StatusOr<bool> AsksForCollectiveChecks(absl::string_view level) {
  const std::string upper = absl::AsciiStrToUpper(level);
  if (upper == "DETAIL") return true;
  if (upper == "OFF" || upper == "INFO" || upper.empty()) return false;
  return absl::InvalidArgumentError(
      absl::StrCat("the environment says TORCH_DISTRIBUTED_DEBUG='", level,
                   "'; expected OFF, INFO or DETAIL"));
}

CollectiveCheck::CollectiveCheck(GroupMember member, milliseconds timeout,
                                 Presence presence)
    : member_(std::move(member)),
      timeout_(timeout),
      presence_(std::move(presence)) {
  LivingChecks::OfProcess().Add(this, member_);
}

CollectiveCheck::~CollectiveCheck() { LivingChecks::OfProcess().Remove(this); }

void CollectiveCheck::Leave() {
  // Without the store nobody compares anything any more.
  thread_.Within<bool>(kFarewell, [m = member_] { return NoteLeaving(m); })
      .status()
      .IgnoreError();
}

std::string CollectiveCheck::Started::ToString() const {
  return purpose.empty() ? what : absl::StrCat(what, " (", purpose, ")");
}

absl::StatusOr<CollectiveCheck::Round> CollectiveCheck::Exchange(
    const GroupMember& member, int64_t sequence, const Started& mine,
    milliseconds timeout, const Presence& presence) {
  c10d::Store& store = *member.store;
  const int rank = member.rank;
  const int size = member.size;
  const std::vector<std::string> whats = Keys("what", sequence, size);
  const std::vector<std::string> purposes = Keys("purpose", sequence, size);
  store.set(purposes[rank], mine.purpose);
  store.set(whats[rank], mine.what);
  TANDEM_ASSIGN_OR_RETURN(const bool all,
                          AwaitAll(member, whats, timeout, presence));
  Round round(size);
  if (!all) {
    for (int r = 0; r < size; ++r) {
      if (!store.check({whats[r]})) continue;
      round[r] = {store.get_to_str(whats[r]), store.get_to_str(purposes[r])};
    }
    return round;
  }
  const auto all_whats = store.multiGet(whats);
  const auto all_purposes = store.multiGet(purposes);
  for (int r = 0; r < size; ++r) {
    round[r] = {BytesAsText(all_whats[r]), BytesAsText(all_purposes[r])};
  }
  // All are here, so all have read what came before.
  store.deleteKey(Keys("what", sequence - 1, size)[rank]);
  store.deleteKey(Keys("purpose", sequence - 1, size)[rank]);
  return round;
}

absl::Status CollectiveCheck::Compare(const std::string& what,
                                      const std::string& purpose) {
  const int64_t sequence = ++sequence_;
  const Started mine{what, purpose};
  auto exchanged = thread_.Within<Round>(
      timeout_ + kGrace,
      [m = member_, sequence, mine, timeout = timeout_, presence = presence_] {
        return Exchange(m, sequence, mine, timeout, presence);
      });
  if (absl::IsDeadlineExceeded(exchanged.status())) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the store, over which ranks compare what they start, did not answer; ",
        "this rank started ", mine.ToString()));
  }
  TANDEM_ASSIGN_OR_RETURN(const Round round, std::move(exchanged));
  TANDEM_RETURN_IF_ERROR(NameMissing(round));
  for (int r = 1; r < member_.size; ++r) {
    if (round[r]->what != round[0]->what) return Disagree(round, r);
  }
  last_ = round;
  return absl::OkStatus();
}

absl::Status CollectiveCheck::NameMissing(const Round& round) const {
  std::vector<int> missing;
  std::string lasts;
  for (int r = 0; r < member_.size; ++r) {
    if (round[r].has_value()) continue;
    missing.push_back(r);
    absl::StrAppend(&lasts, "; the last of rank ", member_.NameOf(r), " was ",
                    last_.empty() ? "none" : last_[r]->ToString());
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(RankList(member_.NamesOf(missing)), " did not start ",
                   round[member_.rank]->ToString(), " within ",
                   absl::FormatDuration(absl::FromChrono(timeout_)), lasts));
}

absl::Status CollectiveCheck::Disagree(const Round& round, int other) const {
  CallWithin<bool>(kFarewell, [store = member_.store,
                               keys = Keys("seen", sequence_, member_.size),
                               rank = member_.rank] {
    store->set(keys[rank], std::string("1"));
    store->wait(keys, kFarewell);
    return true;
  }).IgnoreError();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", member_.NameOf(other), " started ", round[other]->ToString(),
      " where rank ", member_.NameOf(0), " started ", round[0]->ToString(),
      "; every rank must start the same collectives in the same order"));
}

}  // namespace tandem
