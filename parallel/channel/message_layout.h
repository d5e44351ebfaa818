// Message layout: shapes and dtypes of what crosses a cut between ranks, as a
// tensor of numbers that can be sent.

#ifndef TANDEM_PARALLEL_CHANNEL_MESSAGE_LAYOUT_H_
#define TANDEM_PARALLEL_CHANNEL_MESSAGE_LAYOUT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

struct TensorLayout {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // dense, dimensions in any order

  // A gradient comes back for it. (The tensor's requires_grad.)
  bool takes_gradient = false;

  // Strides may be arranged, and a gradient that is not needed may come; the
  // rest may not differ.
  bool Fits(const at::Tensor& tensor) const;
};

using MessageLayout = std::vector<TensorLayout>;

constexpr size_t kMostTensors = 63;
constexpr size_t kMostDimensions = 12;

// InvalidArgument for an undefined tensor, and for more than the above.
absl::StatusOr<MessageLayout> LayoutOf(const std::vector<at::Tensor>& message);

// "Float [4, 8] with gradient, Long [4]"
std::string ToString(const MessageLayout& layout);

// An int64 tensor of fixed size, on the CPU, and back. A CHECK fails for
// numbers that Encode cannot have given.
at::Tensor Encode(const MessageLayout& layout);
MessageLayout Decode(const at::Tensor& numbers);
int64_t EncodedSize();

// Memory of this layout, uninitialised; it requires no gradient.
at::Tensor NewTensor(const TensorLayout& layout, c10::Device device);

// All elements in the order of memory, [numel]: a view.
at::Tensor FlatView(const at::Tensor& tensor);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_MESSAGE_LAYOUT_H_
