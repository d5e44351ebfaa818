// Report of a diagnosis: the verdict in a sentence.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_REPORT_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_REPORT_H_

#include <string>

#include "tools/hang_diagnosis/diagnose.h"
#include "tools/hang_diagnosis/history.h"

namespace tandem {

// 'Rank 1 is at fault (behind): it has not come to all-reduce #12 (bucket 1,
// step 3) of Float [550] in group "world". Ranks 0, 2 wait, rank 0 since
// 2026-01-31 16:01:03.123 UTC (6.0 s). It is in forward of microbatch 2 in
// stage 1.' One line, no newline.
std::string Sentence(const Verdict& verdict);

// The sentence, and a line for each rank: the last that it was doing, and why
// it was dumped.
std::string ReportText(const JobHistory& history, const Verdict& verdict);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_REPORT_H_
