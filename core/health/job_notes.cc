#include "core/health/job_notes.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"
#include "core/health/group_member.h"
#include "core/store/store.h"

namespace tandem {
namespace {

std::optional<FailureNote> DecodeOne(absl::string_view text) {
  const std::optional<int> kind = TakeNumber(&text);
  const std::optional<int> rank = TakeNumber(&text);
  if (!kind.has_value() || !rank.has_value()) return std::nullopt;
  if (*kind < 0 || *kind > static_cast<int>(FailureNote::Kind::kDied)) {
    return std::nullopt;
  }
  FailureNote note;
  note.kind = static_cast<FailureNote::Kind>(*kind);
  note.rank = *rank;
  for (std::string* each :
       {&note.group, &note.group_id, &note.operation, &note.text}) {
    const std::optional<absl::string_view> field = TakeField(&text);
    if (!field.has_value()) return std::nullopt;
    *each = std::string(*field);
  }
  return note;
}

}  // namespace

std::string FailureNote::ToString() const {
  switch (kind) {
    case Kind::kFailed:
      return absl::StrCat("rank ", rank, " failed in ", operation,
                          " of group \"", group, "\"");
    case Kind::kGaveUp:
      return absl::StrCat("rank ", rank, " gave up: ", text);
    case Kind::kDied:
      break;
  }
  return absl::StrCat("rank ", rank, " died: ", text);
}

std::string FailureNote::Encode() const {
  std::string fields;
  AppendNumber(static_cast<int>(kind), &fields);
  AppendNumber(rank, &fields);
  for (const std::string* each : {&group, &group_id, &operation, &text}) {
    AppendField(*each, &fields);
  }
  std::string note;
  AppendField(fields, &note);
  return note;
}

std::vector<FailureNote> DecodeFailureNotes(absl::string_view list) {
  std::vector<FailureNote> notes;
  while (const std::optional<absl::string_view> field = TakeField(&list)) {
    std::optional<FailureNote> note = DecodeOne(*field);
    if (!note.has_value()) break;
    notes.push_back(*std::move(note));
  }
  return notes;
}

namespace {

using std::chrono::milliseconds;

constexpr char kFirst[] = "failed first in the job";
constexpr char kAll[] = "failures in the job";
// Keys that each rank has, to wait for.
constexpr char kFailedInJob[] = "failed in the job";
constexpr char kHeard[] = "heard";

std::vector<std::string> RankKeys(absl::string_view what,
                                  const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(JobNoteKey(what, rank));
  return keys;
}

}  // namespace

std::string JobNoteKey(absl::string_view what, int rank) {
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
  job.set(JobNoteKey(kFailedInJob, note.rank), std::string("1"));
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
  AwaitKeys(job, RankKeys(kFailedInJob, ranks), patience);
}

std::map<int, FailureNote> ReadNotesInJob(c10d::Store& job) {
  return ReadNotes(job, kAll);
}

void AcknowledgeNotes(c10d::Store& job, int rank,
                      const std::vector<int>& others, milliseconds patience) {
  job.set(JobNoteKey(kHeard, rank), std::string("1"));
  AwaitKeys(job, RankKeys(kHeard, others), patience);
}

namespace {

// Never serves one: who should, and does not yet, finds nobody there.
absl::StatusOr<StorePtr> Reach(const Launch& launch, milliseconds patience) {
  const Rendezvous& where = launch.rendezvous;
  if (where.kind == Rendezvous::Kind::kFile) {
    return OpenFileStore(where.path, launch.rank, launch.world_size,
                         where.key_prefix, patience);
  }
  const bool would_serve = !where.served_by_launcher && launch.rank == 0;
  TANDEM_ASSIGN_OR_RETURN(
      StorePtr store,
      ConnectTcpStore(where.host, where.port,
                      would_serve ? milliseconds(200) : patience));
  return WithPrefix(std::move(store), where.key_prefix);
}

}  // namespace

absl::Status ReportFailureToJob(const Launch& launch, FailureNote::Kind kind,
                                const std::string& text,
                                milliseconds patience) {
  if (launch.world_size == 1) return absl::OkStatus();
  FailureNote note;
  note.kind = kind;
  note.rank = launch.rank;
  note.text = text;
  TANDEM_ASSIGN_OR_RETURN(StorePtr store, Reach(launch, patience));
  const StorePtr job = WithPrefix(std::move(store), kWorldName);
  std::vector<int> others;
  for (int rank = launch.local_world_size;
       launch.node_rank == 0 && rank < launch.world_size; ++rank) {
    others.push_back(rank);
  }
  return CallWithin<bool>(2 * patience,
                          [=] {
                            NoteInJob(*job, note);
                            AcknowledgeNotes(*job, note.rank, others, patience);
                            return true;
                          })
      .status();
}

}  // namespace tandem
