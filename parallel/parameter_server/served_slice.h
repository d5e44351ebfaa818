// Served slice: the parameters that one parameter server owns, and their
// optimizer's state.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_SERVED_SLICE_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_SERVED_SLICE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/parameter_update.h"
#include "parallel/optim/update_options.h"
#include "parallel/parameter_server/served_layout.h"

namespace tandem {

// Values lie in flat buffers, a piece a slot, so that the optimizers are those
// of every other strategy, and step as they do: a piece begins on a 64-byte
// boundary and has the bits that the same elements have elsewhere. On the CPU.
//
// Not thread-safe.
class ServedSlice {
 public:
  // InvalidArgument: those of ParameterUpdate. Clipping by norm is over this
  // slice alone. `layout` and `slice` must outlive it.
  static absl::StatusOr<std::unique_ptr<ServedSlice>> Create(
      const ServedLayout& layout, const Slice& slice,
      const UpdateOptions& options);

  void SetValues(const at::Tensor& bytes);
  at::Tensor Values() const;  // new, [slice.bytes]

  // One step with the mean of these pushes: each divided by their number, then
  // summed in the order given. A piece of which none has a gradient is left
  // alone. Changes the messages.
  absl::Status Apply(const std::vector<at::Tensor>& pushes,
                     double learning_rate);

  // Pieces, under "NAME@BEGIN" (PieceName); of the optimizer as
  // "PARAMETER.STATE@BEGIN". Tensors alias the live ones.
  NamedTensors Pieces() const;
  NamedTensors OptimizerPieces() const;

  // Given the whole model's: errors as Strategy's.
  absl::Status LoadValues(const StoredTensors& state);
  absl::Status CheckOptimizerState(const StoredTensors& state) const;
  absl::Status LoadOptimizerState(const StoredTensors& state);

 private:
  ServedSlice(const ServedLayout& layout, const Slice& slice,
              const UpdateOptions& options)
      : layout_(&layout), slice_(&slice), options_(options) {}

  absl::Status Prepare();
  absl::StatusOr<StoredTensors> PiecesOfState(const StoredTensors& state) const;
  int64_t SliceBegin(const std::string& name) const;
  // The sum of the pushes' gradients at one slot, which none may have.
  bool Gather(const std::vector<at::Tensor>& pushes, const FlatSlot& slot,
              const at::Tensor& into) const;
  absl::StatusOr<std::optional<GradientNorms>> Norms() const;

  const ServedLayout* layout_;
  const Slice* slice_;
  UpdateOptions options_;
  FlatBuffers buffers_;  // slots' positions are those in the slice's pieces
  std::optional<ParameterUpdate> update_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_SERVED_SLICE_H_
