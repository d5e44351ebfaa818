// Notes of failures that all ranks of a job read, on its store.

#ifndef TANDEM_CORE_HEALTH_JOB_NOTES_H_
#define TANDEM_CORE_HEALTH_JOB_NOTES_H_

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/health/group_member.h"
#include "core/launch/launch.h"

namespace tandem {

// Failure note: what a failed rank leaves on the store for the others, as
// fields and not as a sentence: who decides by it reads the fields, who shows
// it ToString().

struct FailureNote {
  enum class Kind {
    kFailed,  // what it waited for failed: maybe for another rank's sake
    kGaveUp,  // it has a reason of its own
    kDied,    // its launcher says so
  };

  Kind kind = Kind::kFailed;
  int rank = 0;  // its number in the job
  // kFailed: in which group (as messages call it, and by GroupMember::Id(),
  // which tells groups of one name apart), and in which operation.
  std::string group;
  std::string group_id;
  std::string operation;
  // kGaveUp: why. kDied: how.
  std::string text;

  // 'rank 0 failed in barrier #7 of group "world"', "rank 3 gave up: disk
  // full", "rank 1 died: killed by signal 9 (SIGKILL)".
  std::string ToString() const;

  // One after the other they are a list.
  std::string Encode() const;
};

// The notes of a list, in its order; what stands behind something that is no
// note is left out.
std::vector<FailureNote> DecodeFailureNotes(absl::string_view list);

// `job` is GroupMember::job. All of these throw what the store throws, and make
// a number of operations on it that does not depend on how many ranks there
// are: notes are a list that is read in one piece.

// Leaves a note. The job's first one is kept apart.
void NoteInJob(c10d::Store& job, const FailureNote& note);

// Which rank of the job was the first to note a failure: 'rank 0 failed in
// barrier #7 of group "world"', "rank 3 gave up: disk full"; empty: none.
std::string FailureInJob(const GroupMember& member);

// Waits at most `patience` until all `size` ranks of the job have left a note.
void AwaitNotesInJob(c10d::Store& job, int size,
                     std::chrono::milliseconds patience);

// The first note of each rank that has left one. Waits until there is one.
std::map<int, FailureNote> ReadNotesInJob(c10d::Store& job);

// Says that rank `rank` of the job has read the notes, or needs none, and waits
// at most `patience` until `others` have.
void AcknowledgeNotes(c10d::Store& job, int rank,
                      const std::vector<int>& others,
                      std::chrono::milliseconds patience);

// Adds a note to any list of them, and reads the first one of each rank.
void AppendNote(c10d::Store& store, const std::string& list,
                const FailureNote& note);
std::map<int, FailureNote> ReadNotes(c10d::Store& store,
                                     const std::string& list);

// A rank's own key of that kind.
std::string JobNoteKey(absl::string_view what, int rank);

// Waits for keys; running out of patience is no error: it tells who is missing.
void AwaitKeys(c10d::Store& store, const std::vector<std::string>& keys,
               std::chrono::milliseconds patience);

// Failure of a job told from outside of its groups: by a rank that has not
// joined them, or by the launcher of one that has died.

// Leaves a note that rank `launch.rank` gave up for a reason, or died in some
// way (`text`), over a connection of its own. Ranks that wait, also those that
// still wait for all to come, then end within a second and say so. On node 0,
// whose processes may serve the store, it stays until the other nodes' ranks
// have read it.
//
// Takes three times `patience` at most. An error says that the job could not be
// told: nobody serves the store yet, or any more.
absl::Status ReportFailureToJob(const Launch& launch, FailureNote::Kind kind,
                                const std::string& text,
                                std::chrono::milliseconds patience);

}  // namespace tandem

#endif  // TANDEM_CORE_HEALTH_JOB_NOTES_H_
