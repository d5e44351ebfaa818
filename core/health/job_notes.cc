#include "core/health/job_notes.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

constexpr char kFirst[] = "failed first in the job";
constexpr char kAll[] = "failures in the job";
constexpr char kFailed[] = "failed in the job";  // of each rank, to wait for
constexpr char kHeard[] = "heard";               // the same

std::vector<std::string> KeysOf(absl::string_view what,
                                const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(KeyOf(what, rank));
  return keys;
}

}  // namespace

std::string KeyOf(absl::string_view what, int rank) {
  return absl::StrCat(what, "/", rank);
}

void AwaitKeys(c10d::Store& store, const std::vector<std::string>& keys,
               milliseconds patience) {
  if (keys.empty()) return;
  CatchTorch([&] { store.wait(keys, patience); }).IgnoreError();
}

void AppendNote(c10d::Store& store, const std::string& list,
                const FailureNote& note) {
  const std::string text = note.Encode();
  store.append(list, std::vector<uint8_t>(text.begin(), text.end()));
}

std::map<int, FailureNote> ReadNotes(c10d::Store& store,
                                     const std::string& list) {
  std::map<int, FailureNote> first;
  for (FailureNote& note : DecodeFailureNotes(store.get_to_str(list))) {
    first.try_emplace(note.rank, std::move(note));
  }
  return first;
}

void NoteInJob(c10d::Store& job, const FailureNote& note) {
  job.compareSet(kFirst, std::string(), note.Encode());
  // The list before the key: whoever sees the key reads it.
  AppendNote(job, kAll, note);
  job.set(KeyOf(kFailed, note.rank), std::string("1"));
}

std::string FailureInJob(const GroupMember& member) {
  c10d::Store& job = *member.job;
  if (!job.check({kFirst})) return "";
  const std::vector<FailureNote> first =
      DecodeFailureNotes(job.get_to_str(kFirst));
  return first.empty() ? "" : first.front().ToString();
}

void AwaitNotesInJob(c10d::Store& job, int size, milliseconds patience) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  AwaitKeys(job, KeysOf(kFailed, ranks), patience);
}

std::map<int, FailureNote> ReadNotesInJob(c10d::Store& job) {
  return ReadNotes(job, kAll);
}

void NoteHeard(c10d::Store& job, int rank, const std::vector<int>& others,
               milliseconds patience) {
  job.set(KeyOf(kHeard, rank), std::string("1"));
  AwaitKeys(job, KeysOf(kHeard, others), patience);
}

}  // namespace tandem
