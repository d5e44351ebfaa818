// Message layout: shapes and dtypes of what crosses a cut between ranks, as a
// tensor of numbers that can be sent.
//
// Step form: what one end of a channel tells the other of a step. Two ranks of
// a replica that were given different batches are told so by it, and neither
// waits for what the other will not send.

#ifndef TANDEM_PARALLEL_CHANNEL_MESSAGE_LAYOUT_H_
#define TANDEM_PARALLEL_CHANNEL_MESSAGE_LAYOUT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/channel/channel.h"

namespace tandem {

struct StepForm {
  int64_t microbatches = 0;
  int64_t samples = 0;                   // of all of them
  int64_t rows = 0;                      // a digest of ChannelStep::rows
  int64_t identity = 0;                  // ChannelStep's
  std::vector<int64_t> first_rows = {};  // of those, kShownRows at most
};

StepForm MakeStepForm(const ChannelStep& step);

// Sizes of microbatches that a message has room for.
constexpr int64_t kShownRows = 16;

// int64 numbers, on the CPU, and back.
constexpr int64_t kStepFormNumbers = 4 + kShownRows;
at::Tensor Encode(const StepForm& form);
StepForm DecodeStepForm(const at::Tensor& numbers);

// InvalidArgument, naming both ranks, where they differ. What one of them does
// not know of its samples is not compared.
absl::Status CheckSameStep(const StepForm& form, int rank,
                           const StepForm& other, int other_rank);

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
absl::StatusOr<MessageLayout> MakeMessageLayout(
    const std::vector<at::Tensor>& message);

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
