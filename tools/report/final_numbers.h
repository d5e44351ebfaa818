// Final numbers: what a run came to, for the first screen of its report.

#ifndef TANDEM_TOOLS_REPORT_FINAL_NUMBERS_H_
#define TANDEM_TOOLS_REPORT_FINAL_NUMBERS_H_

#include <string>
#include <vector>

#include "tools/report/run_log.h"

namespace tandem {

// Plain text: who shows it escapes it.
struct FinalNumber {
  std::string label;  // "test loss"
  std::string value;  // "0.3469"
  std::string unit;   // "samples/s", where it is no part of the value
  std::string note;   // "best 0.3211 at step 500"; empty: none
};

// The numbers that the run has, always in the same order. Without a summary (it
// was stopped, say) what its steps and evaluations tell.
std::vector<FinalNumber> FinalNumbers(const RunLog& run);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_FINAL_NUMBERS_H_
