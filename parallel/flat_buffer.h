// Parameters side by side in one buffer, their gradients in a second.
//
// Collectives, clipping and fused optimizer steps then work on slices of two
// tensors instead of on hundreds of small ones, and copy nothing. (PyTorch's
// gradient_as_bucket_view, for parameters as well.)

#ifndef TANDEM_PARALLEL_FLAT_BUFFER_H_
#define TANDEM_PARALLEL_FLAT_BUFFER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/named_tensors.h"

namespace torch {
namespace autograd {
struct Node;
}  // namespace autograd
}  // namespace torch

namespace tandem {

// A parameter's place in the buffers, in elements.
struct FlatSlot {
  std::string name;
  at::Tensor parameter;  // the model's own; a view of values()
  int64_t position;      // among the parameters that were given
  int64_t offset;        // on a 64-byte boundary
  int64_t numel;
  int64_t end;  // the next slot's offset: after `numel` elements, zeros
};

// The parameters of one device and dtype. Making one moves the parameters'
// values: each becomes a view of values() and has a gradient, a view of
// grads(), with the same sizes and strides as before (channels-last stays).
// Both buffers begin on a 64-byte boundary and end on one. The parameters work
// on after the buffer's death, but gradients are no longer noticed.
//
// A gradient is always defined here, so that backward adds to the buffer. What
// PyTorch tells by an undefined one, that a parameter took no part in the last
// backward, has_gradient() tells: hooks note it.
//
// Not thread-safe, but backward may run on any threads.
class FlatBuffer {
 public:
  // `parameters`: leaves that require a gradient, distinct tensors of one
  // device and dtype, in the order of the buffer. `positions` go to the slots.
  FlatBuffer(const NamedTensors& parameters,
             const std::vector<int64_t>& positions);
  ~FlatBuffer();
  FlatBuffer(const FlatBuffer&) = delete;
  FlatBuffer& operator=(const FlatBuffer&) = delete;

  const at::Tensor& values() const { return values_; }  // [size]
  const at::Tensor& grads() const { return grads_; }    // [size]
  const std::vector<FlatSlot>& slots() const { return slots_; }

  // A new buffer of the same size and place, zero: optimizer state.
  at::Tensor NewZeros() const;
  // The part of `flat` (a buffer of this layout) that belongs to the slot, with
  // the parameter's sizes and strides.
  at::Tensor View(const at::Tensor& flat, const FlatSlot& slot) const;

  // Gradients become zero, and no parameter has one.
  void ZeroGrad();
  // Whether backward reached slot `i` since ZeroGrad.
  bool has_gradient(size_t i) const { return (*has_gradient_)[i] != 0; }
  void set_has_gradient(size_t i, bool on) { (*has_gradient_)[i] = on; }

  // Internal, naming the parameter, when somebody replaced a parameter's data
  // or gradient, so that it lies in the buffer no more.
  absl::Status CheckViews() const;

 private:
  void Place(FlatSlot slot);
  void NoteGradients();

  std::vector<FlatSlot> slots_;
  at::Tensor values_;
  at::Tensor grads_;
  // One a slot, not vector<bool>: threads write neighbours. Shared with the
  // hooks, which may outlive the buffer.
  std::shared_ptr<std::vector<char>> has_gradient_;
  // A hook lives as long as the accumulator that it hangs on.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
};

using FlatBuffers = std::vector<std::unique_ptr<FlatBuffer>>;

// One buffer for each (device, dtype), in order of first appearance. A tensor
// that comes under several names (tied weights) is laid out once, under its
// first name; one that requires no gradient is left out. The order within a
// buffer is the reverse of that given: about the order in which backward makes
// gradients ready. Slots' positions are those in `parameters`.
FlatBuffers MakeFlatBuffers(const NamedTensors& parameters);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_FLAT_BUFFER_H_
