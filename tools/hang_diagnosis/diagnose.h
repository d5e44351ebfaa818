// Diagnosis of a hang: from the ranks' flight dumps to a verdict. Pure.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_DIAGNOSE_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_DIAGNOSE_H_

#include "tools/hang_diagnosis/history.h"
#include "tools/hang_diagnosis/verdict.h"

namespace tandem {

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
