// Served layout: which tensors the workers of a parameter server train, which
// slice of them each server owns, and what that is of whole tensors.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_SERVED_LAYOUT_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_SERVED_LAYOUT_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {

struct ServedTensor {
  TensorInfo info;
  std::vector<int64_t> strides;
  int64_t group = 0;  // of its optimizer
};

// The same on every rank; servers have no model and know of it by this alone.
struct ServedLayout {
  // What servers own: parameters that require a gradient, each tensor once.
  std::vector<ServedTensor> trained;
  // What is every worker's own: frozen parameters, then buffers.
  std::vector<ServedTensor> kept;
  size_t frozen = 0;  // how many of `kept` are parameters
  // Further names of a tied weight: what `trained[i]` is called besides, and i.
  std::vector<std::pair<std::string, size_t>> aliases;

  // Group of the optimizer for each trained parameter, by its first name.
  std::map<std::string, int64_t> Groups() const;

  // A line a tensor, and back. Internal for what Encode has not made.
  std::string Encode() const;
  static absl::StatusOr<ServedLayout> Decode(absl::string_view text);
};

// Part of a tensor, in elements of its memory, which lie at `offset` bytes of a
// slice.
struct Piece {
  size_t tensor;
  int64_t begin;
  int64_t length;
  int64_t offset;
};

// What one message holds of all tensors side by side, each on a 64-byte
// boundary: a contiguous part of that row of bytes.
struct Slice {
  std::vector<Piece> pieces;
  int64_t bytes = 0;
};

// `servers` slices of about the same length, which begin on 64-byte boundaries
// and cut tensors where they fall. A tensor without elements is in one of them.
// A slice may be empty. Requires dense tensors and servers >= 1.
std::vector<Slice> CutIntoSlices(const std::vector<ServedTensor>& tensors,
                                 int servers);

// A dense tensor's elements in the order of its memory: a view, [numel].
at::Tensor InMemoryOrder(const at::Tensor& tensor);

// Where `piece` lies in the bytes of a slice: a view, [length], of `dtype`.
at::Tensor PieceView(const at::Tensor& slice, const Piece& piece,
                     c10::ScalarType dtype);

// Each piece's elements to the slice's bytes, and back. `tensors` are those of
// the layout, on any devices; an undefined one is skipped.
void Pack(const std::vector<at::Tensor>& tensors, const Slice& slice,
          const at::Tensor& bytes);
void Unpack(const at::Tensor& bytes, const Slice& slice,
            const std::vector<at::Tensor>& tensors);

// What a worker pushes to one server: for each piece of the slice whether it
// has a gradient, then the slice. uint8, on the CPU.
class GradientMessage {
 public:
  static int64_t BytesFor(const Slice& slice);
  // A view of a message's memory, which it shares.
  GradientMessage(const Slice& slice, at::Tensor bytes)
      : slice_(&slice), bytes_(std::move(bytes)) {}

  // Gradients of the layout's tensors; undefined: it has none.
  void Put(const std::vector<at::Tensor>& gradients);
  bool has(size_t piece) const;
  at::Tensor gradients() const;  // [slice.bytes]

 private:
  const Slice* slice_;
  at::Tensor bytes_;
};

// "fc.weight@64": the elements of fc.weight from the 64th on.
std::string PieceName(const std::string& name, int64_t begin);

// The part of `whole`, which has the shape of `tensor`, that `piece` is:
// [length], in the order of the tensor's memory. Reading it reads the whole.
StoredTensor StoredPiece(const StoredTensor& whole, const Piece& piece,
                         const ServedTensor& tensor);

// Pieces, under PieceName, as a server saves them: each a slice of the tensor
// that it is of. A number of no dimension comes with the first piece.
StatePart StateOfSlices(const NamedTensors& pieces, const ServedLayout& layout);

// A layout's tensors by their names in a checkpoint; state of an optimizer has
// its parameter's shape. The layout must outlive it.
class ServedTensors {
 public:
  explicit ServedTensors(const ServedLayout& layout);
  // Requires such a name.
  const ServedTensor& Find(const std::string& name) const;

 private:
  std::map<std::string, const ServedTensor*> tensors_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_SERVED_LAYOUT_H_
