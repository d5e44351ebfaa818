#include "core/memory/state_bytes.h"

namespace tandem {

StateBytes ComputeStateBytes(int64_t bytes, int64_t copied, bool is_trained,
                             const StatePerParameter& kept) {
  StateBytes state;
  state.parameters = bytes / kept.parameter_shares + copied;
  if (!is_trained) return state;
  state.gradients = bytes / kept.gradient_shares;
  state.optimizer = bytes * kept.optimizer_states / kept.optimizer_shares +
                    bytes * kept.further;
  return state;
}

}  // namespace tandem
