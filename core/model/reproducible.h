// Reproducibility checks of a model: whether it can give the same bits in every
// layout, and when it is computed again.

#ifndef TANDEM_CORE_MODEL_REPRODUCIBLE_H_
#define TANDEM_CORE_MODEL_REPRODUCIBLE_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "core/model/layer.h"

namespace tandem {

// InvalidArgument, naming each, where modules among `layers` depend on what the
// thread has computed before, so on the layout:
//   - LibTorch's own that draw from the default generator: Dropout and its
//     kin, RReLU, FractionalMaxPool, and RNN, LSTM, GRU and MultiheadAttention
//     with dropout;
//   - LibTorch's own BatchNorm and InstanceNorm that track running statistics
//     and do not derive from RecordsStatistics
//     (core/model/statistics_records.h).
// What is not a module (a layer's own function that draws) is not seen.
absl::Status CheckReproducible(const LayerList& layers);

// InvalidArgument, naming each, where modules among `layers` would draw other
// numbers on `device` when their activations are computed again: on CUDA,
// LibTorch's RNN, LSTM and GRU with dropout, which draw inside of cuDNN. All
// else that draws from the default generator gives the same again
// (core/random/default_generator.h).
absl::Status CheckRecomputable(const LayerList& layers, c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_REPRODUCIBLE_H_
