// What each layer of a model takes.

#ifndef TANDEM_TOOLS_BENCH_LAYER_TIMES_H_
#define TANDEM_TOOLS_BENCH_LAYER_TIMES_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/layer.h"
#include "parallel/balance.h"

namespace tandem {

// Forward and backward of each layer, in seconds: the least of some tries, one
// layer after another, on the calling thread. Bytes are left zero. Clears the
// layers' gradients; BatchNorm's running statistics move. LibTorch's errors.
std::vector<LayerCost> LayerTimes(const LayerList& layers,
                                  const at::Tensor& inputs);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_LAYER_TIMES_H_
