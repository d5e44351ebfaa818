// State bytes: what a device holds for parameters, be anything computed or not.
// Whoever plans a device's memory counts by it.

#ifndef TANDEM_CORE_MEMORY_STATE_BYTES_H_
#define TANDEM_CORE_MEMORY_STATE_BYTES_H_

#include <cstdint>
#include <functional>
#include <string>

namespace tandem {

// What a job keeps for each parameter that it trains, beside its values and its
// gradient: so many tensors of its size.
struct StatePerParameter {
  // Tensors of the optimizer: 1 for SGD with momentum, 2 for Adam.
  int optimizer_states = 1;
  // So many replicas share these (ZeRO stage 1), gradients (stage 2) and the
  // parameters (stage 3).
  int64_t optimizer_shares = 1;
  int64_t gradient_shares = 1;
  int64_t parameter_shares = 1;
  // Layers whose parameters are shared are gathered together until they have so
  // many numbers to train.
  int64_t gathered_together = 0;
  // Beside its share a device has all of its gradients, or parameters, for most
  // of a step.
  bool whole_gradients = false;
  bool whole_parameters = false;
  // Which nobody shares: DiLoCo's values and momentum, PowerSGD's errors, sums
  // of --reproducible.
  int further = 0;
  // Instead of optimizer_states, by a parameter's full name, where parameters
  // have different optimizers; null: all have one.
  std::function<int(const std::string& name)> states_of = nullptr;

  // What is kept for the parameter of that name.
  StatePerParameter For(const std::string& name) const {
    StatePerParameter of_one = *this;
    if (states_of) of_one.optimizer_states = states_of(name);
    return of_one;
  }
};

struct StateBytes {
  int64_t parameters = 0;  // with a copy in low precision
  int64_t gradients = 0;
  int64_t optimizer = 0;  // and what is kept further
  // Beside these, while a layer computes with them.
  int64_t gathered = 0;

  // What stays.
  int64_t total() const { return parameters + gradients + optimizer; }
};

// The state of parameters of so many bytes, of which products keep a copy of
// `copied` bytes (core/precision/low_precision_copy.h).
StateBytes ComputeStateBytes(int64_t bytes, int64_t copied, bool is_trained,
                             const StatePerParameter& kept);

}  // namespace tandem

#endif  // TANDEM_CORE_MEMORY_STATE_BYTES_H_
