// Flat buffers: parameters side by side in one buffer, their gradients in a
// second.
//
// Collectives, clipping and fused steps then work on slices of two tensors, and
// copy nothing. (PyTorch's gradient_as_bucket_view, for parameters as well.)

#ifndef TANDEM_PARALLEL_OPTIM_FLAT_BUFFER_H_
#define TANDEM_PARALLEL_OPTIM_FLAT_BUFFER_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/base/round_up.h"
#include "core/base/tensors.h"
#include "core/model/parameter_traits.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/flat_memory.h"

namespace torch::autograd {
struct Node;
}  // namespace torch::autograd

namespace tandem {

// In bytes: a cache line, a vector of AVX-512.
inline constexpr int64_t kAlignment = 64;

// `elements` of the dtype of `like`, rounded up so that what comes behind them
// begins on kAlignment if they do.
inline int64_t AlignedLength(int64_t elements, const at::Tensor& like) {
  const auto bytes = static_cast<int64_t>(like.element_size());
  return RoundUp(elements, std::max<int64_t>(1, kAlignment / bytes));
}

// A parameter's place in a FlatBuffer, in elements.
struct FlatSlot {
  std::string name;
  at::Tensor parameter;  // the model's own; a view of values()
  int64_t position;      // among the parameters that were given
  size_t id;             // which slot it was at first: stays when order changes
  int64_t offset;        // on a 64-byte boundary
  int64_t numel;
  int64_t end;  // the next slot's offset: after `numel` elements, zeros

  // Is `tensor`, which may be undefined, the view of `flat` that is this
  // slot's?
  bool LiesIn(const at::Tensor& tensor, const at::Tensor& flat) const {
    return tensor.defined() && !tensor.is_sparse() &&
           tensor.is_alias_of(flat) &&
           tensor.storage_offset() == flat.storage_offset() + offset;
  }
};

// The parameters of one device, dtype and traits. Making one moves their
// values: each becomes a view of values(), with the same sizes and strides.
// Both buffers begin on a 64-byte boundary and end on one. The parameters work
// on after the buffer's death, but gradients are no longer gathered.
//
// A parameter without a gradient has an undefined one, as in PyTorch. Backward
// gathers: functions that know of gradient places (core/model/gradient_place.h)
// write to grads() themselves; of all others the first gradient of a parameter
// is copied to its place there, which from then on is what the parameter's
// grad() aliases, and further ones are added. What lies in grads() at the place
// of a parameter without a gradient means nothing. Sparse gradients become
// dense.
//
// Not thread-safe, but backward may run on any threads.
class FlatBuffer {
 public:
  // Makes the memory of a buffer: zeros, [numel], on a 64-byte boundary.
  using Allocate = std::function<at::Tensor(int64_t numel,
                                            const at::TensorOptions& options)>;
  // Told of each gradient that backward has put in its place, on its thread.
  using OnGradient = std::function<void(const FlatSlot& slot)>;

  // `parameters`: leaves that require a gradient, distinct tensors of one
  // device and dtype, in the order of the buffer. `positions` go to the slots.
  // `allocate` is for grads(); null: ordinary memory. The size is rounded up so
  // that so many shares are of one length.
  FlatBuffer(const NamedTensors& parameters,
             const std::vector<int64_t>& positions,
             const Allocate& allocate = nullptr, ParameterTraits traits = {},
             const Allocate& allocate_values = nullptr, int shares = 1);
  ~FlatBuffer();
  FlatBuffer(const FlatBuffer&) = delete;
  FlatBuffer& operator=(const FlatBuffer&) = delete;

  // All of them, [size]: where they are sharded, as long as they are gathered.
  const at::Tensor& values() const { return values_.whole(); }
  const at::Tensor& grads() const { return grads_.whole(); }
  // Their memory, of which a share may be kept alone (parallel/fully_sharded).
  FlatMemory& value_memory() { return values_; }
  const FlatMemory& value_memory() const { return values_; }
  FlatMemory& grad_memory() { return grads_; }
  const FlatMemory& grad_memory() const { return grads_; }
  const std::vector<FlatSlot>& slots() const { return slots_; }
  // Where the slot of this id is now.
  size_t index_of(size_t id) const { return index_of_[id]; }
  // Traits of all its parameters.
  const ParameterTraits& traits() const { return traits_; }
  int64_t group() const { return traits_.optimizer_group; }

  // One more buffer of this layout, zero, which Reorder moves with the others:
  // optimizer state.
  at::Tensor AddState();
  // The same for elements [begin, end) alone; slots then stay where they are.
  at::Tensor AddPartialState(int64_t begin, int64_t end);
  bool keeps_order() const { return keeps_order_; }

  // Shares (ShareSpan) begin where parameters do from now on: an optimizer
  // steps whole ones.
  void ShareWholeParameters() { shares_whole_parameters_ = true; }
  bool shares_whole_parameters() const { return shares_whole_parameters_; }

  // What is kept of the parameters elsewhere (an optimizer's state, its numbers
  // of steps) can become another rank's: `exchange` makes a tensor that, in
  // place, and `take` is called with it as long as `keeper` lives.
  using Exchange = absl::FunctionRef<absl::Status(const at::Tensor& tensor)>;
  using Take = std::function<absl::Status(Exchange exchange)>;
  void AddKeeper(std::weak_ptr<const void> keeper, Take take);
  // Calls all keepers, in the order in which they were added, which is to be
  // the same on all ranks.
  absl::Status TakeState(Exchange exchange) const;

  // The part of `flat` (a buffer of this layout) that belongs to the slot, with
  // the parameter's sizes and strides.
  at::Tensor View(const at::Tensor& flat, const FlatSlot& slot) const;

  // What was written through values() counts as a change in place of all
  // parameters, or of slot `i`'s (at::Tensor::_version).
  void CountWrite() const {
    for (size_t i = 0; i < slots_.size(); ++i) CountWrite(i);
  }
  void CountWrite(size_t i) const;

  // No parameter has a gradient any more (zero_grad).
  void ZeroGrad();
  bool has_gradient(size_t i) const {
    return slots_[i].parameter.grad().defined();
  }
  // Gives slot `i` a gradient, whatever lies at its place, or takes it away.
  void set_has_gradient(size_t i, bool on);
  // Functions that put gradients are asked whether these are finite from here
  // on, and say so where it costs less than to look at all elements.
  void AskWhetherFinite() { asks_whether_finite_ = true; }
  // Whether slot `i`'s gradient is known to be finite; nobody may have written
  // to it since backward.
  bool is_known_finite(size_t i) const {
    return has_gradient(i) && known_finite_[slots_[i].id] != 0;
  }
  const OnGradient& on_gradient() const { return on_gradient_; }
  void set_on_gradient(OnGradient on_gradient) {
    on_gradient_ = std::move(on_gradient);
  }

  // Puts the slots into another order: slot i becomes what slots()[order[i]]
  // was. Values, gradients and state move along, in place: tensors that alias
  // the buffers as a whole stay right, older views of parts do not, so that it
  // counts as a change of all parameters: LibTorch refuses a backward through a
  // graph that was made before. Requires a permutation, and that there was no
  // AddPartialState.
  void Reorder(const std::vector<size_t>& order);

  // FailedPrecondition, naming the parameter, when it lies in the buffer no
  // more: module->to() of another dtype or device replaces it, and its hook.
  absl::Status CheckParameters() const;
  // The same, and when a gradient does.
  absl::Status CheckViews() const;

 private:
  struct Link;
  class Gather;

  void Place(size_t i);
  at::Tensor GradientPlaceOf(const FlatSlot& slot);
  void GatherGradients();
  void Gathered(size_t id, bool has_added);
  ParameterTraits traits_;
  bool keeps_order_ = false;
  bool shares_whole_parameters_ = false;
  std::vector<FlatSlot> slots_;
  std::vector<size_t> index_of_;  // by id
  FlatMemory values_;
  FlatMemory grads_;
  std::vector<at::Tensor> state_;
  std::vector<std::pair<std::weak_ptr<const void>, Take>> keepers_;
  OnGradient on_gradient_;
  bool asks_whether_finite_ = false;
  std::vector<char> known_finite_;  // by id; threads write different ones
  // Hooks, which may outlive the buffer, see through it whether it lives.
  std::shared_ptr<Link> link_;
  // A hook lives as long as the accumulator that it hangs on.
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> accumulators_;
};

struct FlatBufferOptions {
  // By parameter: those of different traits share no buffer; without any a
  // parameter is left out. Empty: all have the usual ones.
  std::vector<std::optional<ParameterTraits>> traits;
  // Shares of so many ranks (ShareSpan) are of one length.
  int shares = 1;
  FlatBuffer::Allocate allocate, allocate_values;  // as FlatBuffer's
};

// One buffer for each (device, dtype, traits), in order of first appearance. A
// tied weight is laid out once, under its first name; what requires no gradient
// is left out. The order is the reverse of that given: about that in which
// backward makes gradients ready. Slots' positions are those in `parameters`.
FlatBuffers MakeFlatBuffers(const NamedTensors& parameters,
                            const FlatBufferOptions& options = {});

// The share of a flat buffer whose optimizer state one rank keeps: which of how
// many ranks (ZeRO stage 1, Rajbhandari et al., arXiv:1910.02054;
// torch.distributed.optim.ZeroRedundancyOptimizer).
struct OptimizerShare {
  int rank = 0;
  int ranks = 1;

  bool is_whole() const { return ranks == 1; }
};

// How the optimizer of a buffer is shared; null: each rank has all of it.
using ShareOfBuffer = std::function<OptimizerShare(const FlatBuffer&)>;

// The share's elements: those of all ranks follow each other and make up the
// buffer, each begins on a 64-byte boundary (so that kernels round as they
// would over the whole buffer), and their lengths differ by at most 64 bytes;
// or where the buffer shares whole parameters, each begins with the one nearest
// to that.
ElementSpan ShareSpan(const FlatBuffer& buffer, const OptimizerShare& share);

// Are the shares of so many ranks of one length?
bool SharesAreEqual(const FlatBuffer& buffer, int ranks);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_FLAT_BUFFER_H_
