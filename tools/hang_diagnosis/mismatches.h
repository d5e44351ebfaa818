// Mismatches: ranks of a group that started different things as the same
// collective, or ends of a message that differ.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_MISMATCHES_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_MISMATCHES_H_

#include <optional>

#include "tools/hang_diagnosis/history.h"
#include "tools/hang_diagnosis/verdict.h"

namespace tandem {

// The earliest one as a verdict, whether or not the collective has ended: what
// hangs later may hang because of it. A message's sender is right: it knows
// what it has.
std::optional<Verdict> FindMismatch(const JobHistory& history);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_MISMATCHES_H_
