#include "core/memory/state_bytes.h"

namespace tandem {

StateBytes ComputeStateBytes(int64_t bytes, int64_t copied, bool is_trained,
                             const StatePerParameter& kept) {
  StateBytes state;
  if (kept.parameter_shares == 1) {
    state.parameters = bytes + copied;
  } else {
    // Where there are copies, these alone are gathered.
    const int64_t whole = copied > 0 ? copied : bytes;
    state.parameters =
        bytes / kept.parameter_shares + (kept.whole_parameters ? whole : 0);
    state.gathered = kept.whole_parameters ? 0 : whole;
  }
  if (!is_trained) return state;
  state.gradients = bytes / kept.gradient_shares;
  if (kept.gradient_shares > 1 && kept.whole_gradients) {
    state.gradients += bytes;
  }
  state.optimizer = bytes * kept.optimizer_states / kept.optimizer_shares +
                    bytes * kept.further;
  return state;
}

}  // namespace tandem
