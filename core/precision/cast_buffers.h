// Buffers in a lower precision.

#ifndef TANDEM_CORE_PRECISION_CAST_BUFFERS_H_
#define TANDEM_CORE_PRECISION_CAST_BUFFERS_H_

#include <c10/core/ScalarType.h>

#include "core/base/named_tensors.h"

namespace tandem {

// Gives a module's buffers, where they lie in the module, values of `dtype`:
// those that are floating-point, but for BatchNorm's running statistics
// ("...running_mean", "...running_var"), whose means of many batches bf16
// cannot hold (PyTorch leaves them out, too).
void CastBuffers(const NamedTensors& buffers, c10::ScalarType dtype);

}  // namespace tandem

#endif  // TANDEM_CORE_PRECISION_CAST_BUFFERS_H_
