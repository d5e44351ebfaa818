// Mismatches: ranks of a group that started different things as the same
// collective, or ends of a message that differ.
//
// Camps of ranks: who does the same, and which camp is at fault when ranks of a
// group do different things.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_MISMATCHES_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_MISMATCHES_H_

#include <optional>
#include <vector>

#include "core/flight/dump.h"
#include "tools/hang_diagnosis/history.h"
#include "tools/hang_diagnosis/verdict.h"

namespace tandem {

struct Camp {
  std::vector<int> ranks;                   // in order
  std::vector<const FlightEntry*> entries;  // of each, what it does
};

// The camp that does as it should: one whose operation its first rank has done
// before, as a training loop does in every step; of several the greatest; of
// equals that of the lowest rank.
size_t RightCamp(const JobHistory& history, const std::vector<Camp>& camps);

// The earliest one as a verdict, whether or not the collective has ended: what
// hangs later may hang because of it. A message's sender is right: it knows
// what it has.
std::optional<Verdict> FindMismatch(const JobHistory& history);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_MISMATCHES_H_
