// Gradient message: what a worker pushes to one parameter server.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_GRADIENT_MESSAGE_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_GRADIENT_MESSAGE_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/parameter_server/served_layout.h"

namespace tandem {

// For each piece of the slice whether it has a gradient, then the slice. uint8,
// on the CPU.
class GradientMessage {
 public:
  static int64_t BytesFor(const Slice& slice);
  // Of a message's memory, which it shares.
  GradientMessage(const Slice& slice, at::Tensor bytes);

  // Gradients of the layout's tensors; undefined: it has none.
  void Put(const std::vector<at::Tensor>& gradients);
  bool has(size_t piece) const;
  at::Tensor gradients() const;  // [slice.bytes]

 private:
  const Slice* slice_;
  at::Tensor bytes_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_GRADIENT_MESSAGE_H_
