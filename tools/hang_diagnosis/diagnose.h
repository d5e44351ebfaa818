// Diagnosis of a hang: from the ranks' flight dumps to a verdict. Pure.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_DIAGNOSE_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_DIAGNOSE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/flight/dump.h"
#include "tools/hang_diagnosis/history.h"

namespace tandem {

// A wait of a rank for others: an edge of the wait-for graph.
struct RankWait {
  int rank;
  const FlightEntry* entry;
  std::vector<int> missing;  // who had not come to it when it was dumped
  // They have, and do nothing for it: nobody there waits for it.
  bool has_started = false;

  int64_t since_ns() const {
    return entry->awaited_ns > 0 ? entry->awaited_ns : entry->scheduled_ns;
  }
};

// Waits for every operation that a thread waited for when its rank was dumped,
// and to which other ranks had not come. Where all had come to a collective, it
// is the next one of the group to which some had not: a backend may need their
// threads for both. By rank, then in the order of their start.
std::vector<RankWait> FindWaits(const JobHistory& history);

// The ranks that are waited for and wait for nobody.
std::set<int> RanksAtCause(const std::vector<RankWait>& waits);

// Verdict on a hang: who waits for whom, in which operation, since when, and
// which ranks are at fault.
struct Verdict {
  enum class Fault {
    kNone,        // nobody waits for a rank that has not come
    kUnknown,     // nothing was recorded: no dump has an entry
    kFailed,      // it failed by itself
    kAbsent,      // it has left no dump: killed, frozen, or out of reach
    kBehind,      // it has not come to the operation
    kLate,        // it came when others had given up
    kOtherShape,  // it started the operation with other sizes or another dtype
    kOtherOrder,  // it started another operation in its place
    kOtherGroup,  // it waits in another group, for ranks that wait for it
  };

  Fault fault = Fault::kNone;
  std::vector<int> culprits;  // in order
  std::vector<int> waiting;   // for the culprits, or for who waits for them
  std::string group;          // of the operation: its name
  FlightEntry operation;      // that the first of those waits in
  int64_t since_ns = 0;       // since when that one waits
  int64_t until_ns = 0;       // when it was dumped
  bool has_started = false;   // kBehind: but does nothing for it
  std::string reason;         // of kFailed, and of others' if they say
  // What the first culprit does instead, or did last.
  std::optional<FlightEntry> instead;
  std::string instead_group;  // empty: an action
};

// "absent", "other shape".
const char* FaultName(Verdict::Fault fault);

// In this order, the first that holds:
//   ranks of a group started different things as the same collective, or the
//     two ends of a message differ (mismatches.h);
//   a rank failed by itself before any wait of another had run out;
//   ranks that others wait for have not come, and wait for nobody;
//   ranks wait for each other in a circle, in several groups: the part that
//     does what it has not done before, or is smaller, is at fault
//     (mismatches.h);
//   nobody waits; unknown where no dump has an entry.
// Times of different hosts are compared: clocks must agree to less than the
// timeout.
Verdict Diagnose(const JobHistory& history);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_DIAGNOSE_H_
