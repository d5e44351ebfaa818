// Whether a model can give the same bits in every layout.

#ifndef TANDEM_CORE_REPRODUCIBLE_H_
#define TANDEM_CORE_REPRODUCIBLE_H_

#include "absl/status/status.h"
#include "core/layer.h"

namespace tandem {

// InvalidArgument, naming each, where modules among `layers` depend on what the
// thread has computed before, so on the layout:
//   - LibTorch's own that draw from the default generator: Dropout and its
//     kin, RReLU, FractionalMaxPool, and RNN, LSTM, GRU and MultiheadAttention
//     with dropout;
//   - LibTorch's own BatchNorm and InstanceNorm that track running statistics
//     and do not derive from RecordsStatistics (core/statistics_records.h).
// What is not a module (a layer's own function that draws) is not seen.
absl::Status CheckReproducible(const LayerList& layers);

}  // namespace tandem

#endif  // TANDEM_CORE_REPRODUCIBLE_H_
