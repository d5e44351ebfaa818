// Optimizers that step over flat buffers.

#ifndef TANDEM_PARALLEL_OPTIM_OPTIMIZER_H_
#define TANDEM_PARALLEL_OPTIM_OPTIMIZER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/named_tensors.h"
#include "parallel/optim/flat_buffer_list.h"

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

  // One step, with this learning rate. Returns how many parameters it stepped:
  // those that have a gradient. Where there are parameters and none has one,
  // Backward was forgotten, most likely; the first time this is logged.
  int64_t Step(double learning_rate);

  // The state, by "PARAMETER.STATE" with PyTorch's state names; a parameter
  // that has not been stepped has none. In the order of the parameters given to
  // MakeFlatBuffers. Tensors alias the live ones, with the parameter's strides,
  // but for "step"; they stay right until the buffers' order changes
  // (FlatBuffer::Reorder).
  NamedTensors State() const;

  // Replaces the state. A parameter that `state` says nothing of counts as not
  // stepped yet. InvalidArgument, and nothing changed, for a name that has no
  // place here, a wrong shape or dtype, a number of steps that is none, or a
  // part of a parameter's state missing; nothing changed either for values that
  // the store says are damaged.
  absl::Status LoadState(const StoredTensors& state);
  // What LoadState would say, and nothing changed.
  absl::Status CheckState(const StoredTensors& state) const;

 protected:
  struct Traits {
    std::string name;
    // One buffer each, as large as the parameters: {"exp_avg", "exp_avg_sq"}.
    std::vector<std::string> buffers;
    // Whether the number of steps is a state too ("step"), on which the update
    // depends; else only the first step may differ from later ones.
    bool counts_steps;
  };

  // Neighbours in one flat buffer: slices of it.
  struct Range {
    at::Tensor values;
    at::Tensor grads;
    std::vector<at::Tensor> state;  // as Traits::buffers
    int64_t steps;                  // done before this one
  };

  // What `buffers` lists must outlive the optimizer.
  Optimizer(Traits traits, const FlatBufferList& buffers);

  // Updates range.values and range.state in place.
  virtual void StepRange(const Range& range, double learning_rate) = 0;

 private:
  using StoredByName = std::map<std::string, const StoredTensor*>;

  // What is kept for one flat buffer.
  struct Part {
    FlatBuffer* buffer;
    std::vector<at::Tensor> state;  // as Traits::buffers
    std::vector<int64_t> steps;     // by slot id
  };
  struct Place {
    size_t part;
    size_t slot;
  };

  int64_t StepPart(Part& part, double learning_rate);
  int64_t NextSteps(int64_t steps) const;
  std::vector<Place> PlacesInOrder() const;
  NamedTensors SlotState(const Part& part, size_t slot) const;
  absl::Status CheckSlot(const NamedTensors& wanted,
                         const StoredByName& given) const;
  absl::Status LoadSlot(Part& part, size_t slot, const StoredByName& given);

  Traits traits_;
  std::vector<Part> parts_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_OPTIMIZER_H_
