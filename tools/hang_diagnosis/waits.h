// Waits of ranks for others: the edges of a wait-for graph, and what it says.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_WAITS_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_WAITS_H_

#include <cstdint>
#include <set>
#include <vector>

#include "core/flight/dump.h"
#include "tools/hang_diagnosis/history.h"

namespace tandem {

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
std::vector<RankWait> WaitsOf(const JobHistory& history);

// The ranks that are waited for and wait for nobody.
std::set<int> RanksAtCause(const std::vector<RankWait>& waits);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_WAITS_H_
