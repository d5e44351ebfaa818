// Where to cut a model so that no stage keeps the others waiting. Pure
// functions of what layers cost; profile them with the trainer's --balance.

#ifndef TANDEM_PARALLEL_BALANCE_H_
#define TANDEM_PARALLEL_BALANCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/cut.h"

namespace tandem {

// What a layer takes for one microbatch.
struct LayerCost {
  double forward = 0;   // seconds
  double backward = 0;  // seconds
  // What stays: parameters, gradients and optimizer state.
  int64_t state_bytes = 0;
  // What one microbatch keeps from forward to backward.
  int64_t activation_bytes = 0;
  // What goes to the next layer, and back as a gradient.
  int64_t output_bytes = 0;
  // What a part that begins with this layer keeps of its input, for each
  // microbatch, beside the layers' activations.
  int64_t input_bytes = 0;
};

struct BalanceOptions {
  // Of a message from stage to stage: a whole step waits for it both ways.
  double seconds_per_message = 0;
  double seconds_per_byte = 0;
  // Of each stage's device; 0: no limit.
  int64_t device_bytes = 0;
  // How many microbatches' activations each stage holds at once, first to last;
  // empty: one. See ScheduleFacts.
  std::vector<int> activations_alive;
};

// The cuts whose slowest part is fastest, among those whose parts fit into
// their devices: a part takes its layers' forward and backward and the messages
// at both of its ends. Among equals, the one with the least sum of squares of
// the parts' times. By dynamic programming over (layers, parts), in
// O(layers^2 x parts); DeepSpeed names this 'profile' and torchgpipe
// balance_by_time.
//
// InvalidArgument for more parts than layers, negative costs, another number of
// activations_alive than parts; ResourceExhausted when no cut fits, with the
// layer that cannot be placed.
absl::StatusOr<Cuts> CutsByTime(const std::vector<LayerCost>& layers,
                                int64_t parts,
                                const BalanceOptions& options = {});

// What CutsByTime makes small: the time of each part.
std::vector<double> PartTimes(const std::vector<LayerCost>& layers,
                              const Cuts& cuts,
                              const BalanceOptions& options = {});

// Parts with as many layers of a kind as can be: those whose types `pattern`
// matches, in part or whole (DeepSpeed's "type:REGEX"). InvalidArgument for a
// bad pattern, and for one that matches fewer layers than there are parts.
absl::StatusOr<Cuts> CutsByType(const std::vector<std::string>& types,
                                const std::string& pattern, int64_t parts);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_BALANCE_H_
