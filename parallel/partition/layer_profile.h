// Layer profile: measured costs of a model's layers, and of copies between
// devices.

#ifndef TANDEM_PARALLEL_PARTITION_LAYER_PROFILE_H_
#define TANDEM_PARALLEL_PARTITION_LAYER_PROFILE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/memory/state_bytes.h"
#include "core/model/layer.h"
#include "parallel/partition/balance.h"
#include "parallel/partition/partition.h"

namespace tandem {

struct ProfileOptions {
  // Where the layers are to be timed.
  c10::Device device = c10::kCPU;
  // Rounds over all layers, so that a drift of the machine hits all alike.
  int warmup = 2;
  int runs = 5;
  // Backward as schedules do it that split it in two
  // (parallel/split_backward/graph_split.h); else in one part, but for what
  // layers leave to a sink (core/model/weight_gradient_sink.h).
  bool splits_backward = false;
  // Each layer's weights have gradients already, as they have in all but a
  // step's first microbatch, and what backward gives is added to them.
  bool adds_gradients = false;
  // What training will keep for each parameter.
  StatePerParameter kept = {};
  // What layers read of the microbatch beside its input: a batch's.
  std::map<std::string, c10::IValue> further_inputs = {};
  // Made of the last layer's output and what the loss takes beside it, by name;
  // its time is added to that layer's. Null: leaves it out.
  std::function<at::Tensor(const at::Tensor& output, const Skips& taken)> loss =
      nullptr;
  // LossNames::outputs. Counted on its way to the last layer.
  std::vector<std::string> loss_takes = {};
};

// Runs `input`, a microbatch, through the layers, forward and backward, several
// times. Each layer is brought to the device when its turn comes and goes back
// after it, so that a model too big for one device can be measured; gradients,
// which no two layers have at once, and buffers are then as they were before.
// What backward keeps is measured where the layers are, in one forward through
// all of them. As in training, no gradient of `input` is computed, unless it
// requires one.
//
// Runs in the caller's autocast scope of the device
// (core/precision/autocast.h), wherever the layers are, and keeps no
// low-precision copies. Random numbers that layers draw are drawn.
// InvalidArgument for an empty list, skips that do not fit together, further
// inputs that do not fit the layers, or fewer than 1 run; LibTorch's errors,
// with the layer's name.
absl::StatusOr<ModelProfile> ProfileLayers(const LayerList& layers,
                                           const at::Tensor& input,
                                           const ProfileOptions& options = {});

// Times copies of two sizes, 4 KiB and 4 MiB. Between a device and itself (the
// CPU of two ranks) that of a copy in its memory. LibTorch's errors.
absl::StatusOr<SendingCost> MeasureCopy(c10::Device from, c10::Device to);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_LAYER_PROFILE_H_
