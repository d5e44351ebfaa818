// Notes of failures that all ranks of a job read, on its store.

#ifndef TANDEM_CORE_HEALTH_JOB_NOTES_H_
#define TANDEM_CORE_HEALTH_JOB_NOTES_H_

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/health/failure_note.h"
#include "core/health/group_member.h"

namespace tandem {

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
void NoteHeard(c10d::Store& job, int rank, const std::vector<int>& others,
               std::chrono::milliseconds patience);

// Of any list of notes: adds one; reads the first of each rank.
void AppendNote(c10d::Store& store, const std::string& list,
                const FailureNote& note);
std::map<int, FailureNote> ReadNotes(c10d::Store& store,
                                     const std::string& list);

// A rank's own key of that kind.
std::string KeyOf(absl::string_view what, int rank);

// Waits for keys; running out of patience is no error: it tells who is missing.
void AwaitKeys(c10d::Store& store, const std::vector<std::string>& keys,
               std::chrono::milliseconds patience);

}  // namespace tandem

#endif  // TANDEM_CORE_HEALTH_JOB_NOTES_H_
