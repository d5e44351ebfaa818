// Gradient watch: whether parameters have been given gradients, so that an
// optimizer may have changed them.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_GRADIENT_WATCH_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_GRADIENT_WATCH_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <vector>

namespace torch {
namespace autograd {
struct Node;
}  // namespace autograd
}  // namespace torch

namespace tandem {

// LibTorch's SGD writes to parameters' data(), which their version counters do
// not tell. An optimizer writes to what has a gradient.
//
// Backward may run on any threads; all else is one thread's.
class GradientWatch {
 public:
  // What is watched from now on.
  void Watch(const std::vector<at::Tensor>& parameters);

  // Whether a write may have come since the last call: a parameter had a
  // gradient then, has been given one by backward, or has one now.
  bool MayHaveChanged();

 private:
  std::vector<at::Tensor> parameters_;
  // A hook lives as long as the accumulator that it hangs on, and may outlive
  // the watch.
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> accumulators_;
  const std::shared_ptr<std::atomic<bool>> came_ =
      std::make_shared<std::atomic<bool>>(true);
  bool had_one_ = false;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_GRADIENT_WATCH_H_
