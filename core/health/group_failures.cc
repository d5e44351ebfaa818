#include "core/health/group_failures.h"

#include <atomic>
#include <functional>
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/call_within.h"
#include "core/base/short_list.h"
#include "core/base/torch_status.h"
#include "core/health/job_notes.h"
#include "core/store/server.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Kind = FailureNote::Kind;

// What one that answers needs to take a note, and to give several: a FileStore
// counts whole seconds, and so waits up to one longer than it was told.
constexpr milliseconds kNoteTime = std::chrono::seconds(2);
constexpr milliseconds kReadTime = std::chrono::seconds(2);

// Keys of a group: the first reason for giving up, as text; a key for each rank
// that failed, to wait for; and their notes, a list.
constexpr char kGaveUp[] = "gave up";
constexpr char kFailed[] = "failed";
constexpr char kFailures[] = "failures";

// A call of ReportFailure, among those of all groups of this rank.
class Telling {
 public:
  explicit Telling(const GroupMember& member) : shared_(member.shared) {
    ++shared_->telling;
  }
  ~Telling() { End(); }
  Telling(const Telling&) = delete;
  Telling& operator=(const Telling&) = delete;

  // Whether no other goes on.
  bool End() { return !ended_.exchange(true) && --shared_->telling == 0; }

 private:
  const std::shared_ptr<GroupMember::Shared> shared_;
  std::atomic<bool> ended_{false};
};

// Nobody waits to hear that the ranks that are `silent` have read the notes.
void ExcuseSilent(const GroupMember& member, const std::vector<int>& silent) {
  if (member.NameOf(member.rank) != 0) return;
  for (const int each : silent) {
    AcknowledgeNotes(*member.job, each, {}, milliseconds(0));
  }
}

// Rank 0 of the job, whatever it is in this group, may serve the store: it
// stays until all of the job that are not `silent` have read the notes too, or
// for so long; twice as long for those of other groups, who also ask the job.
void Hear(const GroupMember& member, const std::vector<int>& silent,
          milliseconds patience) {
  const int me = member.NameOf(member.rank);
  std::vector<int> others;
  for (int name = 0; me == 0 && name < member.job_size; ++name) {
    if (!absl::c_linear_search(silent, name)) others.push_back(name);
  }
  const int waits = member.job == member.store ? 1 : 2;
  AcknowledgeNotes(*member.job, me, others, waits * patience);
}

// The same of one that has read what it wants to know, unless it goes on
// reading in another group: whoever serves the store may go when it hears so,
// even before it has answered.
void HearAtEnd(const GroupMember& member, const std::vector<int>& silent,
               milliseconds patience, Telling* telling) {
  CatchTorch([&] {
    ExcuseSilent(member, silent);
    if (telling->End()) Hear(member, silent, patience);
  }).IgnoreError();
}

// Waits for the ranks of the group that have not failed elsewhere in the job.
void AwaitNotes(const GroupMember& member, milliseconds patience) {
  const auto in_job = ReadNotesInJob(*member.job);
  std::vector<std::string> awaited;
  for (int r = 0; r < member.size; ++r) {
    if (in_job.count(member.NameOf(r)) > 0) continue;
    awaited.push_back(JobNoteKey(kFailed, r));
  }
  AwaitKeys(*member.store, awaited, patience);
}

// The ranks of the job that have failed nowhere by then.
std::vector<int> SilentInJob(const GroupMember& member, milliseconds patience) {
  if (member.job == member.store) return {};
  AwaitNotesInJob(*member.job, member.job_size, patience);
  const auto in_job = ReadNotesInJob(*member.job);
  std::vector<int> silent;
  for (int name = 0; name < member.job_size; ++name) {
    if (in_job.count(name) == 0) silent.push_back(name);
  }
  return silent;
}

// Did it wait in vain in another group? Then the cause is nobody of this one.
bool FailedElsewhere(const FailureNote& note, const GroupMember& member) {
  return note.kind == Kind::kFailed && note.group_id != member.Id();
}

// What the others of the group noted, in it or elsewhere; those that noted
// nothing are `silent`.
std::vector<std::string> CallTheRoll(const GroupMember& member, bool* asks_job,
                                     std::vector<int>* silent) {
  const auto in_group = ReadNotes(*member.store, kFailures);
  const auto in_job = ReadNotesInJob(*member.job);
  std::vector<std::string> parts;
  for (int r = 0; r < member.size; ++r) {
    const int name = member.NameOf(r);
    if (r == member.rank) continue;
    const auto here = in_group.find(name);
    const auto anywhere = in_job.find(name);
    if (anywhere != in_job.end()) {
      *asks_job |= FailedElsewhere(anywhere->second, member);
    }
    if (here != in_group.end()) {
      parts.push_back(
          absl::StrCat("rank ", name, " failed in ", here->second.operation));
    } else if (anywhere != in_job.end()) {
      parts.push_back(anywhere->second.ToString());
    } else {
      silent->push_back(name);
    }
  }
  return parts;
}

// What ReportFailure says, from a store that answers.
Failures ReadFailures(const GroupMember& member, bool asks_job,
                      milliseconds patience, Telling* telling) {
  c10d::Store& store = *member.store;
  Failures failures;
  if (!store.check({kGaveUp})) AwaitNotes(member, patience);
  if (store.check({kGaveUp})) {
    failures.gave_up = store.get_to_str(kGaveUp);
    HearAtEnd(member, /*silent=*/{}, patience, telling);
    return failures;
  }
  std::vector<int> silent;
  std::vector<std::string> parts = CallTheRoll(member, &asks_job, &silent);
  if (silent.empty() && asks_job) silent = SilentInJob(member, patience);
  if (!silent.empty()) {
    parts.insert(parts.begin(),
                 absl::StrCat("not heard of: ", RankList(silent)));
  }
  failures.others = ShortList(parts, /*most=*/8, "; ");
  HearAtEnd(member, silent, patience, telling);
  return failures;
}

// Has the store take a note. A TCPStore says nothing to that, so it is asked
// for something: one that is frozen shows at once.
absl::Status Note(const GroupMember& member,
                  std::function<void(c10d::Store&)> write) {
  if (member.shared->store_is_silent)
    return absl::DeadlineExceededError("no answer");
  const absl::Status noted = CallWithin<bool>(kNoteTime, [=] {
                               write(*member.store);
                               member.store->check({kGaveUp});
                               return true;
                             }).status();
  if (absl::IsDeadlineExceeded(noted)) member.shared->store_is_silent = true;
  return noted;
}

FailureNote RankNote(const GroupMember& member, Kind kind) {
  FailureNote note;
  note.kind = kind;
  note.rank = member.NameOf(member.rank);
  note.group = member.name;
  note.group_id = member.Id();
  return note;
}

}  // namespace

bool HasFailedRank(c10d::Store& store) {
  return store.check({kFailures}) || store.check({kGaveUp});
}

Failures ReportFailure(const GroupMember& member, const std::string& operation,
                       bool asks_job, milliseconds patience,
                       absl::FunctionRef<void()> then) {
  const auto telling = std::make_shared<Telling>(member);
  FailureNote note = RankNote(member, Kind::kFailed);
  note.operation = operation;
  const absl::Status noted = Note(member, [=](c10d::Store& store) {
    // The list first: whoever sees the key reads it.
    AppendNote(store, kFailures, note);
    store.set(JobNoteKey(kFailed, member.rank), std::string("1"));
    NoteInJob(*member.job, note);
  });
  then();
  if (!noted.ok()) return {"", DescribeSilence(member.store, noted)};
  absl::StatusOr<Failures> told = CallWithin<Failures>(
      4 * patience + kReadTime,
      [=] { return ReadFailures(member, asks_job, patience, telling.get()); });
  return told.ok() ? *told
                   : Failures{"", DescribeSilence(member.store, told.status())};
}

void ReportGivingUp(const GroupMember& member, const std::string& reason) {
  FailureNote note = RankNote(member, Kind::kGaveUp);
  note.text = reason;
  Note(member, [=](c10d::Store& store) {
    // The first is the cause: others may give up because of it.
    store.compareSet(kGaveUp, std::string(), note.ToString());
    NoteInJob(*member.job, note);
    AcknowledgeNotes(*member.job, note.rank, /*others=*/{}, milliseconds(0));
  }).IgnoreError();
}

void AwaitFailureRead(const GroupMember& member, milliseconds patience) {
  if (member.shared->store_is_silent) return;
  CallWithin<bool>(2 * patience + kNoteTime,
                   [=] {
                     Hear(member, /*silent=*/{}, patience);
                     return true;
                   })
      .status()
      .IgnoreError();
}

void AwaitListeners(const GroupMember& member, milliseconds patience) {
  if (member.NameOf(member.rank) == 0) AwaitFailureRead(member, patience);
}

}  // namespace tandem
