#include "core/roll_call.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "core/call_within.h"
#include "core/store_server.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// What a store that answers needs beyond the timeout to say that it has passed.
constexpr milliseconds kGrace = std::chrono::seconds(5);

// What one that answers needs to take a note, and to give several: a FileStore
// counts whole seconds, and so waits up to one longer than it was told.
constexpr milliseconds kNoteTime = std::chrono::seconds(2);
constexpr milliseconds kReadTime = std::chrono::seconds(2);

constexpr char kGaveUp[] = "gave up";
constexpr char kFailedIn[] = " failed in ";
constexpr char kInJob[] = "failed in the job";
constexpr char kFirstInJob[] = "failed first in the job";

std::vector<std::string> KeysOfAll(absl::string_view what, int size) {
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back(absl::StrCat(what, "/", r));
  return keys;
}

// The ranks whose keys are not there.
std::vector<int> Missing(c10d::Store& store,
                         const std::vector<std::string>& keys) {
  std::vector<int> missing;
  for (size_t r = 0; r < keys.size(); ++r) {
    if (!store.check({keys[r]})) missing.push_back(static_cast<int>(r));
  }
  return missing;
}

// Rank 0 of the job, whatever it is in this group.
bool MayServe(const GroupMember& member) {
  return member.NameOf(member.rank) == 0;
}

std::string HeardKey(const GroupMember& member) {
  return absl::StrCat("heard/", member.NameOf(member.rank));
}

// Notes that this rank has read the others' notes. Rank 0 may serve the store:
// it stays until all of the job that are not `silent` have read them too, or
// for so long; twice as long for those of other groups, who also ask the job.
void NoteHeard(const GroupMember& member, const std::vector<int>& silent,
               milliseconds patience) {
  c10d::Store& job = *member.job;
  const std::vector<std::string> keys = KeysOfAll("heard", member.job_size);
  job.set(HeardKey(member), std::string("1"));
  if (!MayServe(member)) return;
  std::vector<std::string> awaited;
  for (int name = 0; name < member.job_size; ++name) {
    if (!absl::c_linear_search(silent, name)) awaited.push_back(keys[name]);
  }
  const int waits = member.job == member.store ? 1 : 2;
  CatchTorch([&] { job.wait(awaited, waits * patience); }).IgnoreError();
}

std::string OfGroup(const GroupMember& member) {
  return absl::StrCat(" of group \"", member.name, "\"");
}

// For ranks of other groups: "rank 3 gave up: disk full" of " gave up: disk
// full". The first is the cause.
void NoteInJob(const GroupMember& member, const std::string& what) {
  const int name = member.NameOf(member.rank);
  const std::string text = absl::StrCat("rank ", name, what);
  member.job->compareSet(absl::StrCat(kInJob, "/", name), std::string(), text);
  member.job->compareSet(kFirstInJob, std::string(), text);
}

// What a rank of the group noted elsewhere; empty if it did not.
std::string NotedInJob(const GroupMember& member, int rank) {
  const std::string key = absl::StrCat(kInJob, "/", member.NameOf(rank));
  return member.job->check({key}) ? member.job->get_to_str(key) : "";
}

// Those of ranks that have not failed elsewhere in the job. Running out of
// patience is no error: it tells who is missing.
void AwaitNotes(const GroupMember& member, const std::vector<std::string>& keys,
                milliseconds patience) {
  std::vector<std::string> awaited;
  for (int r = 0; r < member.size; ++r) {
    if (NotedInJob(member, r).empty()) awaited.push_back(keys[r]);
  }
  if (awaited.empty()) return;
  CatchTorch([&] { member.store->wait(awaited, patience); }).IgnoreError();
}

// The ranks of the job that have failed nowhere by then.
std::vector<int> SilentInJob(const GroupMember& member, milliseconds patience) {
  if (member.job == member.store) return {};
  const std::vector<std::string> keys = KeysOfAll(kInJob, member.job_size);
  CatchTorch([&] { member.job->wait(keys, patience); }).IgnoreError();
  return Missing(*member.job, keys);
}

// What TellFailure says, from a store that answers.
Failures ReadFailures(const GroupMember& member, bool asks_job,
                      milliseconds patience) {
  c10d::Store& store = *member.store;
  const int rank = member.rank;
  const int size = member.size;
  Failures failures;
  const std::vector<std::string> keys = KeysOfAll("failed", size);
  if (!store.check({kGaveUp})) AwaitNotes(member, keys, patience);
  if (store.check({kGaveUp})) {
    failures.gave_up = store.get_to_str(kGaveUp);
    NoteHeard(member, /*silent=*/{}, patience);
    return failures;
  }
  std::vector<int> silent;
  std::vector<std::string> parts;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const std::string failed_in =
        absl::StrCat("rank ", member.NameOf(r), kFailedIn);
    const std::string in_job = NotedInJob(member, r);
    // Then the cause is nobody of this group. What it gave up for may read
    // like anything.
    asks_job |= absl::StartsWith(in_job, failed_in) &&
                !absl::EndsWith(in_job, OfGroup(member));
    const std::string noted =
        store.check({keys[r]})
            ? absl::StrCat(failed_in, store.get_to_str(keys[r]))
            : in_job;
    if (noted.empty()) {
      silent.push_back(member.NameOf(r));
    } else {
      parts.push_back(noted);
    }
  }
  if (silent.empty() && asks_job) silent = SilentInJob(member, patience);
  if (!silent.empty()) {
    parts.insert(parts.begin(),
                 absl::StrCat("not heard of: ", RankList(silent)));
  }
  failures.others = absl::StrJoin(parts, "; ");
  NoteHeard(member, silent, patience);
  return failures;
}

// Has the store take a note. A TCPStore says nothing to that, so it is asked
// for something: one that is frozen shows at once.
absl::Status Note(const GroupMember& member,
                  std::function<void(c10d::Store&)> write) {
  if (*member.store_is_silent) return absl::DeadlineExceededError("no answer");
  const absl::Status noted = CallWithin<bool>(kNoteTime, [=] {
                               write(*member.store);
                               member.store->check({kGaveUp});
                               return true;
                             }).status();
  if (absl::IsDeadlineExceeded(noted)) *member.store_is_silent = true;
  return noted;
}

// Those that did not come.
absl::StatusOr<std::vector<int>> Meet(const GroupMember& member,
                                      milliseconds timeout) {
  c10d::Store& store = *member.store;
  const std::vector<std::string> keys = KeysOfAll("came", member.size);
  if (store.add(absl::StrCat("joined/", member.rank), 1) > 1) {
    return absl::AlreadyExistsError(
        absl::StrCat("rank ", member.NameOf(member.rank),
                     " has joined a group of this name before"));
  }
  // Not `add`: on a HashStore that wakes nobody who waits for the key.
  store.set(keys[member.rank], std::string("1"));
  const absl::Status met = CatchTorch([&] { store.wait(keys, timeout); });
  if (met.ok()) return std::vector<int>();
  if (met.code() != absl::StatusCode::kDeadlineExceeded) return met;
  return Missing(store, keys);  // nobody, if the last came at the last moment
}

}  // namespace

bool SomebodyFailed(c10d::Store& store, int size) {
  std::vector<std::string> keys = KeysOfAll("failed", size);
  keys.push_back(kGaveUp);
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
    return store.check({key});
  });
}

std::string FailureInJob(const GroupMember& member) {
  c10d::Store& job = *member.job;
  return job.check({kFirstInJob}) ? job.get_to_str(kFirstInJob) : "";
}

std::string RankList(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", "));
}

absl::Status MeetAtStore(const GroupMember& member, milliseconds timeout) {
  const StorePtr& store = member.store;
  const auto missing = CallWithin<std::vector<int>>(
      timeout + kGrace, [=] { return Meet(member, timeout); });
  if (absl::IsAlreadyExists(missing.status())) return missing.status();
  if (!missing.ok()) {
    return Annotate(missing.status(), DescribeSilence(store, missing.status()));
  }
  if (missing->empty()) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(RankList(member.NamesOf(*missing)), " did not come within ",
                   absl::FormatDuration(absl::FromChrono(timeout))));
}

Failures TellFailure(const GroupMember& member, const std::string& operation,
                     bool asks_job, milliseconds patience,
                     absl::FunctionRef<void()> then) {
  const StorePtr& store = member.store;
  const absl::Status noted = Note(member, [=](c10d::Store& notes) {
    notes.set(absl::StrCat("failed/", member.rank), operation);
    NoteInJob(member, absl::StrCat(kFailedIn, operation, OfGroup(member)));
  });
  then();
  if (!noted.ok()) return {"", DescribeSilence(store, noted)};
  absl::StatusOr<Failures> told = CallWithin<Failures>(
      4 * patience + kReadTime,
      [=] { return ReadFailures(member, asks_job, patience); });
  return told.ok() ? *told
                   : Failures{"", DescribeSilence(store, told.status())};
}

void TellGivingUp(const GroupMember& member, const std::string& reason) {
  Note(member, [=](c10d::Store& notes) {
    const std::string what = absl::StrCat(" gave up: ", reason);
    // The first is the cause: others may give up because of it.
    notes.compareSet(kGaveUp, std::string(),
                     absl::StrCat("rank ", member.NameOf(member.rank), what));
    NoteInJob(member, what);
    // It has its own reason, and reads no other's: nobody stays for it.
    member.job->set(HeardKey(member), std::string("1"));
  }).IgnoreError();
}

void AwaitListeners(const GroupMember& member, milliseconds patience) {
  if (!MayServe(member) || *member.store_is_silent) return;
  CallWithin<bool>(2 * patience + kNoteTime,
                   [=] {
                     NoteHeard(member, /*silent=*/{}, patience);
                     return true;
                   })
      .status()
      .IgnoreError();
}

}  // namespace tandem
