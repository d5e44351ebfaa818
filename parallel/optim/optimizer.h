// Optimizer: steps over flat buffers.

#ifndef TANDEM_PARALLEL_OPTIM_OPTIMIZER_H_
#define TANDEM_PARALLEL_OPTIM_OPTIMIZER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/variant.h"
#include "core/base/tensors.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

class OptimizerRule;
class SteppedBuffer;
class StoredTensors;
struct StatePart;

// "fc.weight" of "fc.weight.momentum_buffer": whose state it is.
std::string ParameterName(const std::string& state_name);

// Buffers that are stepped by one rule (an entry of torch.optim's
// param_groups).
struct ParameterGroup {
  std::unique_ptr<OptimizerRule> rule;
  FlatBufferList buffers;
};

// Updates the parameters of some flat buffers from their gradients, as PyTorch
// does: a parameter without a gradient is left alone (no decay, no momentum, no
// step counted). One fused kernel call serves each maximal run of neighbours
// that have a gradient and as many steps behind them; mostly that is the whole
// buffer. State lies in flat buffers of the same layout.
//
// The result equals torch::optim's within rounding: the fused kernels order
// some operations differently (tests/parallel/optim/optimizer_test.cc states
// how close). Where runs begin and end does not change a bit.
//
// In a buffer that it shares with other ranks it steps its own elements and has
// state for these alone; the others' values are for the ranks that share them.
//
// Made by MakeOptimizer, or by MakeGroupedOptimizer where parameter groups have
// options of their own; the learning rate is one for all. State has the names
// that it has without groups, so that a checkpoint does not depend on them.
//
// Not thread-safe.
class Optimizer {
 public:
  // What the groups list must outlive the optimizer.
  Optimizer(std::vector<ParameterGroup> groups, const ShareOfBuffer& share_of);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // "SGD", "Adam", "AdamW", "Muon": the first group's.
  const std::string& name() const;
  // What it was made for, group by group.
  FlatBufferList buffers() const;

  // What a buffer's gradients are divided by, in place, in the pass that steps
  // (clipping): a number of the host, 1 where nothing is, or one of float32 on
  // the gradients' device, which the host does not read.
  using Divisor = absl::variant<double, at::Tensor>;
  using DivisorOf = std::function<Divisor(const FlatBuffer&)>;

  // One step, with this learning rate. Returns how many parameters it stepped:
  // those that have a gradient. Where a group has parameters and none has one,
  // Backward was forgotten, most likely; the first time this is logged.
  int64_t Step(double learning_rate, const DivisorOf& divisor_of = nullptr) {
    return StepUnless(at::Tensor(), learning_rate, divisor_of);
  }

  // The same, unless `found_inf`, a number of float32 on the buffers' device,
  // is 1 and not 0 (the fused optimizers' `found_inf`): the step is then none,
  // and the host need not know. While the host does not know, a step counts; it
  // asks the device where it must: for the state, or where parameters that have
  // a gradient are not the last step's, or may have their first step.
  int64_t StepUnless(const at::Tensor& found_inf, double learning_rate,
                     const DivisorOf& divisor_of = nullptr);

  // The state, by "PARAMETER.STATE" with PyTorch's state names; a parameter
  // that has not been stepped has none. Group by group, in the order of the
  // parameters given to MakeFlatBuffers. Tensors alias the live ones, with the
  // parameter's strides, but for "step"; they stay right until the buffers'
  // order changes (FlatBuffer::Reorder). Of buffers that are shared with other
  // ranks: none.
  NamedTensors State() const;

  // State that is shared, too: `gather` makes of this rank's elements of a
  // state of `buffer` all of them, on one rank; on others it returns undefined
  // tensors, and this returns nothing of that buffer. Collective, as `gather`
  // is: called for the same states in the same order on all ranks.
  using GatherPart = absl::FunctionRef<absl::StatusOr<at::Tensor>(
      const FlatBuffer& buffer, const at::Tensor& mine)>;
  absl::StatusOr<NamedTensors> GatherState(GatherPart gather) const;

  // This rank's slices of the state of buffers that are shared with other
  // ranks, by the same names. Every element, and every "step", is of one rank.
  StatePart SharedState() const;

  // Replaces the state. A parameter that `state` says nothing of counts as not
  // stepped yet. InvalidArgument, and nothing changed, for a name that has no
  // place here, a wrong shape or dtype, a number of steps that is none, or a
  // part of a parameter's state missing; nothing changed either for values that
  // the store says are damaged.
  absl::Status LoadState(const StoredTensors& state);
  // What LoadState would say, and nothing changed.
  absl::Status CheckState(const StoredTensors& state) const;

 private:
  struct Group {
    std::unique_ptr<OptimizerRule> rule;
    std::vector<std::unique_ptr<SteppedBuffer>> buffers;
  };
  struct Place {
    SteppedBuffer* buffer;
    size_t number;  // of the buffer, in its group
    size_t slot;
  };

  void Settle() const;
  // In the order of the parameters' positions.
  static std::vector<Place> PlacesInOrder(const Group& group);
  static absl::Status GatherState(const Group& group, GatherPart gather,
                                  NamedTensors* state);
  static absl::Status CheckState(const Group& group,
                                 const StoredTensors& state);
  // State of each group's parameters; the first group gets what nobody knows,
  // and will refuse it.
  std::vector<StoredTensors> ByGroup(const StoredTensors& state) const;

  std::vector<Group> groups_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_OPTIMIZER_H_
