// Stepped buffer: a flat buffer as an optimizer has it, with the state of its
// parameters and how many steps each has had.

#ifndef TANDEM_PARALLEL_OPTIM_STEPPED_BUFFER_H_
#define TANDEM_PARALLEL_OPTIM_STEPPED_BUFFER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/optimizer_rule.h"
#include "parallel/optim/slot_slice.h"

namespace tandem {

// State by its full name, "PARAMETER.STATE".
using StoredByName = std::map<std::string, const StoredTensor*>;

// One of an Optimizer's, which says what happens to it. Slots are numbered as
// in the flat buffer. Not thread-safe.
class SteppedBuffer {
 public:
  // `buffer` and `rule` must outlive it.
  SteppedBuffer(FlatBuffer& buffer, const OptimizerRule& rule,
                const OptimizerShare& share);
  SteppedBuffer(const SteppedBuffer&) = delete;
  SteppedBuffer& operator=(const SteppedBuffer&) = delete;

  FlatBuffer& buffer() const { return buffer_; }
  bool is_shared() const { return is_shared_; }
  // State of what is stepped here, as OptimizerTraits::buffers.
  const std::vector<at::Tensor>& state() const { return state_; }
  size_t size() const { return steps_.size(); }  // slots
  // Settled ones, of a slot.
  int64_t steps(size_t slot) const { return steps_[buffer_.slots()[slot].id]; }

  // One step of what has a gradient, divided by `divisor`; how many parameters
  // that are. The device leaves it out where `found_inf` is defined and 1; else
  // requires Settle().
  int64_t Step(double learning_rate, const std::optional<at::Tensor>& divisor,
               const at::Tensor& found_inf);
  // Asks the device how many of the steps that it could leave out it has done.
  void Settle();

  // A slot's state, under full names: views of `states`, as
  // OptimizerTraits::buffers, which are whole; "step" is a copy, and the last.
  NamedTensors SlotState(size_t slot,
                         const std::vector<at::Tensor>& states) const;
  // The same names and forms: values mean nothing.
  NamedTensors SlotForm(size_t slot) const;
  // Adds this rank's slices of a slot's state.
  void AddShare(size_t slot, StatePart* shared) const;

  // InvalidArgument unless all of `wanted`, a slot's form, is given.
  absl::Status CheckSlot(const NamedTensors& wanted,
                         const StoredByName& given) const;
  // Takes, instead of what is here, the state that is given and was checked.
  absl::Status Load(const StoredByName& given);

 private:
  // Steps that the device could leave out, of which the host does not know
  // whether it did.
  struct Unsettled {
    int64_t count = 0;
    std::vector<size_t> ids;      // of the slots that had a gradient
    std::vector<int64_t> before;  // steps_ then
    at::Tensor skipped;           // how many were left out, on the device
  };

  void BeginUnsettled();
  // Where the run of neighbours that step together ends, which begins here.
  size_t EndOfRun(size_t begin) const;
  OptimizerRange Range(int64_t begin, int64_t length) const;
  FlatShare Share(const at::Tensor& state) const {
    return {span_, state, is_first_};
  }
  // FlatBuffer's: the state becomes another rank's.
  absl::Status TakeState(FlatBuffer::Exchange exchange);
  absl::Status LoadSlot(size_t slot, const StoredByName& given);
  absl::Status LoadValues(size_t slot, const StoredTensor& values,
                          const at::Tensor& kept) const;

  FlatBuffer& buffer_;
  const OptimizerRule& rule_;
  const bool is_shared_;
  const bool is_first_;            // of those that share it
  const ElementSpan span_;         // that are stepped here
  std::vector<at::Tensor> state_;  // of `span_`
  std::vector<int64_t> steps_;     // by slot id
  Unsettled unsettled_;
  const std::shared_ptr<const bool> lives_;  // for the buffer
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_STEPPED_BUFFER_H_
