// Early end: what is said where another rank has left and this one trains on.

#ifndef TANDEM_PARALLEL_DDP_EARLY_END_H_
#define TANDEM_PARALLEL_DDP_EARLY_END_H_

#include <cstdint>

#include "absl/status/status.h"

namespace tandem {

// An error of the backward whose gradients are to be averaged after those of
// `backwards` others, with the numbers and what to do, if it is that another
// rank has left: nothing failed there, its batches have come to an end. A step
// may have several such backwards, and a batch none (no_sync).
absl::Status ExplainEarlyEnd(const absl::Status& status, int64_t backwards);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_EARLY_END_H_
