// Camps of ranks: who does the same, and which camp is at fault when ranks of a
// group do different things.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_CAMPS_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_CAMPS_H_

#include <vector>

#include "core/flight/dump.h"
#include "tools/hang_diagnosis/history.h"

namespace tandem {

struct Camp {
  std::vector<int> ranks;                   // in order
  std::vector<const FlightEntry*> entries;  // of each, what it does
};

// The camp that does as it should: one whose operation its first rank has done
// before, as a training loop does in every step; of several the greatest; of
// equals that of the lowest rank.
size_t RightCamp(const JobHistory& history, const std::vector<Camp>& camps);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_CAMPS_H_
