#include "core/memory/state_bytes.h"

namespace tandem {

StateBytes ComputeStateBytes(int64_t bytes, int64_t copied, bool is_trained,
                             const StatePerParameter& kept) {
  StateBytes state;
  state.parameters = bytes + copied;
  if (!is_trained) return state;
  state.gradients = bytes;
  state.optimizer = bytes * kept.optimizer_states / kept.optimizer_shares +
                    bytes * kept.further;
  return state;
}

}  // namespace tandem
