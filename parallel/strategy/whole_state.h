// Whole state: the tensors of a whole model, and which of them are meant.

#ifndef TANDEM_PARALLEL_STRATEGY_WHOLE_STATE_H_
#define TANDEM_PARALLEL_STRATEGY_WHOLE_STATE_H_

#include "core/base/named_tensors.h"

namespace tandem {

struct StateParts {
  bool parameters = true;
  bool buffers = true;
  bool optimizer = false;
};

// See Strategy::GatherState.
struct WholeState {
  NamedTensors parameters;
  NamedTensors buffers;
  NamedTensors optimizer;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_WHOLE_STATE_H_
