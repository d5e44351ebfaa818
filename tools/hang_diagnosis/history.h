// History of a job: the flight dumps of its ranks, read from a folder and put
// together by group.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_HISTORY_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_HISTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/flight/dump.h"

namespace tandem {

struct FoundDumps {
  std::vector<FlightDump> dumps;     // by rank
  std::vector<std::string> ignored;  // files, each with the reason
};

// The rank_N.json of the job that wrote last; those of other jobs, and files
// that are no dumps of theirs, are ignored. NotFound where there is none.
absl::StatusOr<FoundDumps> ReadDumps(const std::string& folder);

// A group of ranks, as far as dumps tell of it.
struct GroupHistory {
  std::string name;
  std::vector<int> ranks;  // of the job
  // For each rank that tells of the group: collectives by number, and how many
  // it has started in all, of which its ring may have lost the first.
  std::map<int, std::map<int64_t, const FlightEntry*>> collectives;
  std::map<int, int64_t> scheduled;
};

// Points into itself: neither copied nor moved.
class JobHistory {
 public:
  // Dumps of one job, one a rank at most.
  explicit JobHistory(std::vector<FlightDump> dumps);
  JobHistory(const JobHistory&) = delete;
  JobHistory& operator=(const JobHistory&) = delete;

  int world_size() const { return world_size_; }
  const std::map<int, FlightDump>& dumps() const { return dumps_; }  // by rank
  const std::map<std::string, GroupHistory>& groups() const { return groups_; }
  // The group of an entry of that rank's dump, which is no action.
  const std::string& GroupId(int rank, const FlightEntry& entry) const;

  // What rank `rank` has as its part of `entry` of rank `of`: its collective of
  // that number, or the other end of the message. Null: nothing, or it is not
  // known.
  const FlightEntry* Counterpart(int of, const FlightEntry& entry,
                                 int rank) const;
  // Had that rank come to it by `by_ns`? Where its ring has lost the time in
  // question, it had.
  bool HadJoined(int of, const FlightEntry& entry, int rank,
                 int64_t by_ns) const;
  // Whether the rank has completed the like of the entry before it: the same
  // operation, for the same purpose, of the same sizes.
  bool HasDoneBefore(int rank, const FlightEntry& entry) const;

 private:
  int world_size_ = 0;
  std::map<int, FlightDump> dumps_;
  std::map<std::string, GroupHistory> groups_;  // by id
};

// Are the two the same operation, for the same purpose as far as both say, of
// the same sizes? Numbers, times and states do not count.
bool AreAlike(const FlightEntry& one, const FlightEntry& other);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_HISTORY_H_
