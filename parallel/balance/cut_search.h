// Cut search, where a device has several parts. For balance.h.

#ifndef TANDEM_PARALLEL_BALANCE_CUT_SEARCH_H_
#define TANDEM_PARALLEL_BALANCE_CUT_SEARCH_H_

#include <cstdint>
#include <vector>

#include "parallel/balance/cut.h"
#include "parallel/balance/part_costs.h"

namespace tandem {

struct FoundCuts {
  Cuts cuts;
  // What the fullest devices lack, together; 0: all parts fit.
  int64_t missing_bytes = 0;
};

// The cuts that lack the least memory, of those the ones whose slowest device
// is fastest, and of those the ones with the least sum of squares of the parts'
// times. All are tried where there are not too many (some 10,000); else the
// best that comes of `starts` (one at least, each with as many cuts) by moving
// one or two cuts for as long as that helps.
FoundCuts SearchCuts(const PartCosts& costs, int64_t device_bytes,
                     const std::vector<Cuts>& starts);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_BALANCE_CUT_SEARCH_H_
