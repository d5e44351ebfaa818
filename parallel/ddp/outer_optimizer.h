// DiLoCo's outer optimizer: SGD with Nesterov momentum on the averaged
// difference that replicas have made while they trained apart.

#ifndef TANDEM_PARALLEL_DDP_OUTER_OPTIMIZER_H_
#define TANDEM_PARALLEL_DDP_OUTER_OPTIMIZER_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/named_tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "parallel/ddp/options.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language
// Models", arXiv:2311.08105; torchft's DiLoCo. With the global values x of the
// last outer step, and the mean y of all replicas' values:
//
//   gradient = x - y
//   momentum = outer_momentum * momentum + gradient
//   x = x - outer_learning_rate * (gradient + outer_momentum * momentum)
//
// (torch.optim.SGD with nesterov; without momentum, x - rate * gradient.) All
// replicas go on from x. Rate 1 without momentum is plain averaging, within
// rounding: x - (x - y).
//
// Two flat buffers more, one without momentum. Global values and momentum are
// state, "PARAMETER.outer_value" and "PARAMETER.outer_momentum_buffer", the
// same on all replicas. Not thread-safe.
class OuterOptimizer {
 public:
  // `buffers`, those that are averaged, must outlive it.
  OuterOptimizer(const OuterOptimizerOptions& options,
                 const FlatBufferList& buffers);

  // Before the first step in which replicas train apart: what they have now,
  // which is the same on all, are the global values. Later calls do nothing.
  void Begin();
  // Requires that the buffers' values are the replicas' mean, and Begin.
  void Step();

  // Nothing before Begin.
  NamedTensors State() const;
  // Whether a state of that name is an outer optimizer's.
  static bool Has(const std::string& state_name);
  // Takes all of `state` that Has. InvalidArgument for a name without a place,
  // a wrong shape or dtype, or a part missing. Without any, the next Begin
  // begins anew.
  absl::Status CheckState(const StoredTensors& state) const;
  absl::Status LoadState(const StoredTensors& state);

 private:
  struct Part {
    FlatBuffer* buffer;
    at::Tensor values;    // global
    at::Tensor momentum;  // undefined: none is kept
  };

  NamedTensors AllState() const;

  OuterOptimizerOptions options_;
  std::vector<Part> parts_;
  bool begun_ = false;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_OUTER_OPTIMIZER_H_
