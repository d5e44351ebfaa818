// Optimizers that step over flat buffers.

#ifndef TANDEM_PARALLEL_OPTIM_OPTIMIZER_H_
#define TANDEM_PARALLEL_OPTIM_OPTIMIZER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer_range.h"
#include "parallel/optim/optimizer_share.h"

namespace tandem {

class StoredTensors;
struct StoredTensor;

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
// Of a buffer that it shares with other ranks it steps its own elements and has
// state for these alone; the others' values are for whoever shares them.
//
// Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // "SGD", "Adam", "AdamW".
  const std::string& name() const { return traits_.name; }
  // What it was made for.
  FlatBufferList buffers() const;

  // What a buffer's gradients are divided by, in place, in the pass that steps
  // (clipping). 1: nothing is.
  using DivisorOf = std::function<double(const FlatBuffer&)>;

  // One step, with this learning rate. Returns how many parameters it stepped:
  // those that have a gradient. Where there are parameters and none has one,
  // Backward was forgotten, most likely; the first time this is logged.
  int64_t Step(double learning_rate, const DivisorOf& divisor_of = nullptr);

  // The same, unless `found_inf`, a number of float32 on the buffers' device,
  // is 1 and not 0 (the fused optimizers' `found_inf`): the step is then none,
  // and the host need not know. Gradients are divided by `divisor`, as such a
  // number, if there is one. While the host does not know, a step counts; it
  // asks the device where it must: for the state, or where parameters that have
  // a gradient are not the last step's, or may have their first step.
  int64_t StepUnless(const at::Tensor& found_inf, double learning_rate,
                     const std::optional<at::Tensor>& divisor = std::nullopt);

  // Step, with gradients divided by `divisor`, a number of float32 on their
  // device, which the host does not read.
  int64_t StepDivided(double learning_rate, const at::Tensor& divisor);

  // The state, by "PARAMETER.STATE" with PyTorch's state names; a parameter
  // that has not been stepped has none. In the order of the parameters given to
  // MakeFlatBuffers. Tensors alias the live ones, with the parameter's strides,
  // but for "step"; they stay right until the buffers' order changes
  // (FlatBuffer::Reorder). Of buffers that are shared with other ranks: none.
  NamedTensors State() const;

  // State that is shared, too: `gather` makes of this rank's elements of a
  // state of `buffer` all of them, on one rank; on others it returns undefined
  // tensors, and this returns nothing of that buffer. Collective, as `gather`
  // is: called for the same states in the same order on all ranks.
  using GatherPart = absl::FunctionRef<absl::StatusOr<at::Tensor>(
      const FlatBuffer& buffer, const at::Tensor& mine)>;
  absl::StatusOr<NamedTensors> GatherState(GatherPart gather) const;

  // Of buffers that are shared with other ranks: this rank's slices of the
  // state, by the same names. Every element, and every "step", is of one rank.
  StatePart SharedState() const;

  // Replaces the state. A parameter that `state` says nothing of counts as not
  // stepped yet. InvalidArgument, and nothing changed, for a name that has no
  // place here, a wrong shape or dtype, a number of steps that is none, or a
  // part of a parameter's state missing; nothing changed either for values that
  // the store says are damaged.
  absl::Status LoadState(const StoredTensors& state);
  // What LoadState would say, and nothing changed.
  absl::Status CheckState(const StoredTensors& state) const;

 protected:
  using Traits = OptimizerTraits;
  using Range = OptimizerRange;

  // What `buffers` lists must outlive the optimizer.
  Optimizer(Traits traits, const FlatBufferList& buffers,
            const ShareOfBuffer& share_of);

  // Updates range.values and range.state in place.
  virtual void StepRange(const Range& range, double learning_rate) = 0;

 private:
  using StoredByName = std::map<std::string, const StoredTensor*>;

  // Steps of StepUnless of which the host does not know whether they were done.
  struct Unsettled {
    int64_t count = 0;
    std::vector<size_t> ids;      // of the slots that had a gradient
    std::vector<int64_t> before;  // Part::steps then
    at::Tensor skipped;           // how many were left out, on the device
  };
  // What is kept for one flat buffer.
  struct Part {
    FlatBuffer* buffer;
    bool is_shared;
    bool is_first;                  // of those that share it
    ElementSpan span;               // that are stepped here
    std::vector<at::Tensor> state;  // of `span`, as Traits::buffers
    std::vector<int64_t> steps;     // by slot id
    Unsettled unsettled;
  };
  struct Place {
    size_t part;
    size_t slot;
  };

  using StepOfRange = absl::FunctionRef<void(const Range& range)>;
  using DivisorTensorOf =
      absl::FunctionRef<std::optional<at::Tensor>(const FlatBuffer& buffer)>;
  int64_t StepAll(double learning_rate, DivisorTensorOf divisor_of);
  int64_t StepPart(Part& part, const std::optional<at::Tensor>& divisor,
                   StepOfRange step);
  // Neighbours in a part, by slot.
  struct Run {
    size_t begin;
    size_t end;
  };
  void StepRun(Part& part, Run run, const std::optional<at::Tensor>& divisor,
               StepOfRange step);
  void CountRun(Part& part, Run run);
  void BeginUnsettled(Part& part) const;
  void Settle(Part& part) const;
  void Settle() const;
  int64_t NextSteps(int64_t steps) const;
  // FlatBuffer's: the state becomes another rank's.
  absl::Status TakeState(Part& part, FlatBuffer::Exchange exchange);
  std::vector<Place> PlacesInOrder() const;
  // `states` are whole, as Traits::buffers.
  NamedTensors SlotState(const Part& part, size_t slot,
                         const std::vector<at::Tensor>& states) const;
  void AddShare(const Part& part, size_t slot, StatePart* shared) const;
  // As its names and forms: values mean nothing.
  NamedTensors SlotForm(const Part& part, size_t slot) const;
  absl::Status LoadValues(Part& part, size_t slot, size_t state,
                          const StoredTensor& values);
  absl::Status CheckSlot(const NamedTensors& wanted,
                         const StoredByName& given) const;
  absl::Status LoadSlot(Part& part, size_t slot, const StoredByName& given);

  Traits traits_;
  mutable std::vector<Part> parts_;  // the host learns late what was done
  const std::shared_ptr<const bool> lives_;  // for the buffers
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_OPTIMIZER_H_
