// Results: what each side of a comparison came to.

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_RESULT_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_RESULT_H_

#include <string>
#include <vector>

#include "tools/bench/case/case.h"

namespace tandem {

// Times are in milliseconds; where ranks differ, they are the slowest rank's.
struct SideResult {
  std::string name;              // "tandem", or a peer's
  std::string failure = {};      // why there are no figures; empty: there are
  Setting setting = {};          // the fastest of those it could choose from
  std::string kernels = {};      // whose multiply, on which instructions
  std::vector<double> step_ms;   // by round
  std::vector<double> alone_ms;  // by round: a core's step of the whole model,
                                 // with the other cores equally busy
  std::vector<double> cpu_ms;    // by round: processor time of a step
  std::vector<double> faults;    // by round: page faults of a step
  double comm_ms = 0;            // while a bucket was on its way
  double exposed_ms = 0;         // of that, without computation beside it
  double peak_mib = 0;           // the most memory of a rank

  bool failed() const { return !failure.empty(); }
};

struct CaseResult {
  Case bench;
  SideResult ours;
  std::vector<SideResult> peers;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_RESULT_H_
