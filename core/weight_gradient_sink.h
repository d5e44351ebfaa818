// Where layers leave the gradients of their weights for later (zero bubble:
// backward in two parts, 2401.10241). Layers know this alone, not who asks.

#ifndef TANDEM_CORE_WEIGHT_GRADIENT_SINK_H_
#define TANDEM_CORE_WEIGHT_GRADIENT_SINK_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// A layer that can do its backward in two parts asks for Current() in forward,
// keeps what it gets in its autograd node, and in backward, if
// MayDefer(weight), calls Defer instead of computing the weight's gradient, and
// gives autograd none. A layer that knows nothing of this computes both at
// once.
//
// Thread-safe: backward may run on any threads.
class WeightGradientSink {
 public:
  // While it lives, layers that the calling thread runs forward get `sink`.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<WeightGradientSink> sink);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::shared_ptr<WeightGradientSink> outer_;
  };

  // Of the calling thread's innermost scope; null outside of all.
  static std::shared_ptr<WeightGradientSink> Current();

  // Is `weight` a leaf whose gradient accumulates, and backward not itself to
  // be differentiated?
  static bool MayDefer(const at::Tensor& weight);

  // `compute` gives the gradient of `weight`; what it needs it holds.
  void Defer(at::Tensor weight, std::function<at::Tensor()> compute);

  // Computes what was left, in that order, and hands each gradient to
  // autograd's accumulator of its weight: it is added to grad(), and whoever
  // waits for that gradient (FlatBuffer, and so the reducer) hears of it.
  // LibTorch's errors; the rest is dropped then.
  absl::Status Flush();

  // How many gradients wait.
  size_t size() const;

 private:
  struct Deferred {
    at::Tensor weight;
    std::function<at::Tensor()> compute;
  };

  mutable absl::Mutex mutex_;
  std::vector<Deferred> deferred_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_CORE_WEIGHT_GRADIENT_SINK_H_
