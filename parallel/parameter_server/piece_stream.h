// Stream of pieces: whole tensors on one rank, from the slices of many.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_PIECE_STREAM_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_PIECE_STREAM_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/named_tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "parallel/parameter_server/served_layout.h"

namespace tandem {

// "fc.weight@64": the elements of fc.weight from the 64th on.
std::string PieceName(const std::string& name, int64_t begin);

// The part of `whole`, which has the shape of `tensor`, that `piece` is:
// [length], in the order of the tensor's memory. Reading it reads the whole.
StoredTensor PartOf(const StoredTensor& whole, const Piece& piece,
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

// Joins pieces, under PieceName and in the order in which `sink` wants the
// tensors that they are of, and hands these on, one at a time. A piece is
// [length]; a number of no dimension is a whole tensor. Both must outlive it.
// Not thread-safe.
class JoiningSink : public TensorSink {
 public:
  // `layout` says what shapes tensors have.
  JoiningSink(const ServedLayout& layout, TensorSink* sink);

  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override;
  absl::Status Begin(std::vector<TensorInfo> infos) override;
  // DataLoss, naming the tensor, when pieces of it are missing.
  absl::Status Add(const at::Tensor& values) override;

 private:
  TensorInfo WholeTensor(const TensorInfo& piece) const;
  absl::Status HandOn(const TensorInfo& whole);

  const ServedTensors tensors_;
  TensorSink* sink_;
  std::vector<TensorInfo> pieces_;
  size_t next_ = 0;
  at::Tensor joined_;   // in the order of memory
  int64_t filled_ = 0;  // elements of it
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_PIECE_STREAM_H_
