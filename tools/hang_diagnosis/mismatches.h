// Mismatches: ranks of a group that started different things as the same
// collective, or ends of a message that differ.
//
// Ranks that do the same: parts of a group, and which part is at fault when
// they do different things.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_MISMATCHES_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_MISMATCHES_H_

#include <optional>
#include <vector>

#include "core/flight/dump.h"
#include "tools/hang_diagnosis/diagnose.h"
#include "tools/hang_diagnosis/history.h"

namespace tandem {

// Ranks that do the same.
struct AlikeRanks {
  std::vector<int> ranks;                   // in order
  std::vector<const FlightEntry*> entries;  // of each, what it does
};

// The part that does as it should: one whose operation its first rank has done
// before, as a training loop does in every step; of several the greatest; of
// equals that of the lowest rank.
size_t RightRanks(const JobHistory& history,
                  const std::vector<AlikeRanks>& parts);

// The earliest one as a verdict, whether or not the collective has ended: what
// hangs later may hang because of it. A message's sender is right: it knows
// what it has.
std::optional<Verdict> FindMismatch(const JobHistory& history);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_MISMATCHES_H_
