// c10d's reductions as those of core/vector/sum.h.

#ifndef TANDEM_CORE_SHM_REDUCTION_H_
#define TANDEM_CORE_SHM_REDUCTION_H_

#include <c10/core/ScalarType.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "core/vector/sum.h"

namespace tandem {

// For `ranks` ranks. Throws c10::Error for what does not exist.
Reduction ReductionOf(const c10d::ReduceOp& op, c10::ScalarType dtype,
                      int ranks);
VectorSum SumOf(const Reduction& reduction);

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_REDUCTION_H_
