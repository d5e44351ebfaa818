#include "core/roll_call.h"

#include <algorithm>

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

// Notes that this rank has read the others' notes. Rank 0 may serve the store:
// it stays until `others` have read them too, or for so long.
void NoteHeard(c10d::Store& store, int rank, const std::vector<int>& others,
               milliseconds patience) {
  store.set(absl::StrCat("heard/", rank), std::string("1"));
  if (rank != 0 || others.empty()) return;
  std::vector<std::string> keys;
  for (int r : others) keys.push_back(absl::StrCat("heard/", r));
  CatchTorch([&] { store.wait(keys, patience); }).IgnoreError();
}

std::vector<int> OthersThan(int rank, int size) {
  std::vector<int> others;
  for (int r = 0; r < size; ++r) {
    if (r != rank) others.push_back(r);
  }
  return others;
}

// What TellFailure says, from a store that answers.
Failures ReadFailures(const GroupMember& member, milliseconds patience) {
  c10d::Store& store = *member.store;
  const int rank = member.rank;
  const int size = member.size;
  Failures failures;
  if (store.check({kGaveUp})) {
    failures.gave_up = store.get_to_str(kGaveUp);
    NoteHeard(store, rank, OthersThan(rank, size), patience);
    return failures;
  }
  const std::vector<std::string> keys = KeysOfAll("failed", size);
  // Running out of patience is no error: it tells who is missing.
  CatchTorch([&] { store.wait(keys, patience); }).IgnoreError();
  std::vector<int> silent;
  std::vector<int> failed;
  std::vector<std::string> parts;
  for (int r = 0; r < size; ++r) {
    if (!store.check({keys[r]})) {
      silent.push_back(r);
    } else if (r != rank) {
      failed.push_back(r);
      parts.push_back(absl::StrCat("rank ", member.NameOf(r), " failed in ",
                                   store.get_to_str(keys[r])));
    }
  }
  if (!silent.empty()) {
    parts.insert(parts.begin(), absl::StrCat("not heard of: ",
                                             RankList(member.NamesOf(silent))));
  }
  failures.others = absl::StrJoin(parts, "; ");
  NoteHeard(store, rank, failed, patience);
  return failures;
}

// Has the store take a note. A TCPStore says nothing to that, so it is asked
// for something: one that is frozen shows at once.
absl::Status Note(const StorePtr& store,
                  std::function<void(c10d::Store&)> write) {
  return CallWithin<bool>(kNoteTime,
                          [=] {
                            write(*store);
                            store->check({kGaveUp});
                            return true;
                          })
      .status();
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
                     milliseconds patience, absl::FunctionRef<void()> then) {
  const StorePtr& store = member.store;
  const absl::Status noted = Note(store, [=](c10d::Store& notes) {
    notes.set(absl::StrCat("failed/", member.rank), operation);
  });
  then();
  if (!noted.ok()) return {"", DescribeSilence(store, noted)};
  absl::StatusOr<Failures> told = CallWithin<Failures>(
      2 * patience + kReadTime, [=] { return ReadFailures(member, patience); });
  return told.ok() ? *told
                   : Failures{"", DescribeSilence(store, told.status())};
}

void TellGivingUp(const GroupMember& member, const std::string& reason) {
  Note(member.store, [=](c10d::Store& notes) {
    const std::string text =
        absl::StrCat("rank ", member.NameOf(member.rank), " gave up: ", reason);
    // The first is the cause: others may give up because of it.
    notes.compareSet(kGaveUp, std::string(), text);
  }).IgnoreError();
}

void AwaitListeners(const GroupMember& member, milliseconds patience) {
  if (member.rank != 0) return;
  CallWithin<bool>(patience + kNoteTime,
                   [=] {
                     NoteHeard(*member.store, member.rank,
                               OthersThan(member.rank, member.size), patience);
                     return true;
                   })
      .status()
      .IgnoreError();
}

}  // namespace tandem
