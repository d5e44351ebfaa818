// Pipeline balancing: where to cut a model so that no stage keeps the others
// waiting. Pure functions of what layers cost; profile them with the trainer's
// --balance. And a model's profile: the cost of each layer, as numbers, of
// which cuts are made and a step is predicted (parallel/schedule/simulation.h).

#ifndef TANDEM_PARALLEL_PARTITION_BALANCE_H_
#define TANDEM_PARALLEL_PARTITION_BALANCE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/balance/cut.h"

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
  // What is there at once while an evaluation computes this layer, beside the
  // state; 0: nothing is evaluated.
  int64_t evaluation_bytes = 0;
  // Its parameters, where replicas share them (ZeRO 3): whole while the layer
  // computes, and gathered ahead. And how many numbers to train these are.
  int64_t gathered_bytes = 0;
  int64_t gathered_numbers = 0;
};

// How many microbatches' inputs, and how many's activations, a part keeps at
// some moment.
struct PartAlive {
  int inputs = 1;
  int activations = 1;

  bool operator<(const PartAlive& other) const {
    return inputs != other.inputs ? inputs < other.inputs
                                  : activations < other.activations;
  }
};

// A device and the parts that it has, which share its time and its memory.
struct BalanceDevice {
  std::vector<int> parts;
  // What each of them keeps, at every moment at which the sum may be greatest.
  std::vector<std::vector<PartAlive>> moments;
};

struct BalanceOptions {
  // Cost of a message from device to device: a whole step waits for it both
  // ways.
  double seconds_per_message = 0;
  double seconds_per_byte = 0;
  // Memory of each device; 0: no limit.
  int64_t device_bytes = 0;
  // Each part is on one of them. Empty: each has a device of its own, and keeps
  // one microbatch.
  std::vector<BalanceDevice> devices = {};
  // Layers of a part are gathered together until they have so many numbers.
  int64_t gathered_together = 0;
};

// The cuts whose slowest device is fastest, among those whose parts fit into
// their devices: a part takes its layers' forward and backward and the messages
// at both of its ends. Among equals, the one with the least sum of squares of
// the parts' times. Where each part has a device of its own, by dynamic
// programming over (layers, parts), in O(layers^2 x parts); DeepSpeed names
// this 'profile' and torchgpipe balance_by_time. Else by a search: the best
// of all for small models, and a good one for large ones.
//
// InvalidArgument for more parts than layers, negative costs, devices that do
// not have each part once; ResourceExhausted when no cut fits, with the layer
// that cannot be placed, or what is missing.
absl::StatusOr<Cuts> CutsByTime(const std::vector<LayerCost>& layers,
                                int64_t parts,
                                const BalanceOptions& options = {});

// The time of each part, of which CutsByTime makes the greatest sum of a device
// small.
std::vector<double> PartTimes(const std::vector<LayerCost>& layers,
                              const Cuts& cuts,
                              const BalanceOptions& options = {});

// Parts with as many layers of a kind as can be: those whose types `pattern`
// matches, in part or whole (DeepSpeed's "type:REGEX"). InvalidArgument for a
// bad pattern, and for one that matches fewer layers than there are parts.
absl::StatusOr<Cuts> CutsByType(const std::vector<std::string>& types,
                                const std::string& pattern, int64_t parts);

// The profile of one layer and one microbatch.
struct LayerProfile {
  std::string name;
  // Seconds, medians.
  double forward = 0;
  // All of backward, for a layer that is not taken apart
  // (ProfileOptions::splits_backward).
  double backward_input = 0;
  double backward_weight = 0;
  int64_t parameter_bytes = 0;
  // Parameters, buffers, gradients, optimizer state; tied weights included.
  int64_t state_bytes = 0;
  // What the layer makes and backward needs, be it this layer's or that of one
  // further on: distinct storages, without parameters and buffers. A stage
  // keeps its input beside that.
  int64_t activation_bytes = 0;
  // What goes to the next layer: its input, and skips on their way past it.
  int64_t output_bytes = 0;
  // The state of each parameter that several layers share, by a number of its
  // own: layers with the same number share it.
  std::map<int, int64_t> shared_state = {};
  // See LayerCost.
  int64_t gathered_bytes = 0;
  int64_t gathered_numbers = 0;
};

struct ModelProfile {
  int64_t input_bytes = 0;  // the first layer's, and further inputs
  std::vector<LayerProfile> layers;
  // How many times as many samples a microbatch of an evaluation has; 0:
  // nothing is evaluated.
  double evaluation_scale = 0;
  int64_t gathered_together = 0;  // see BalanceOptions
};

// For CutsByTime. An evaluation has no graph: of a layer there is at once its
// input, its output and what it makes on the way.
std::vector<LayerCost> LayerCosts(const ModelProfile& profile);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_BALANCE_H_
