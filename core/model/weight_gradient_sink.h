// Deferred weight gradients: a sink in which layers leave them for later (zero
// bubble: backward in two parts, 2401.10241). Layers know this alone, not who
// asks.

#ifndef TANDEM_CORE_MODEL_WEIGHT_GRADIENT_SINK_H_
#define TANDEM_CORE_MODEL_WEIGHT_GRADIENT_SINK_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/context/compute_context.h"

namespace tandem {

// Split node: mark of an autograd node that leaves gradients of its weights to
// a sink. It is a second base of such a node, so that who splits whatever other
// graphs (parallel/split_backward) lets it see to its weights itself.
class SplitNode {
 public:
  virtual ~SplitNode() = default;
};

// Gradients of some weights, left for later.
struct DeferredGradients {
  // What they are computed from, for one microbatch.
  using Operands = std::vector<at::Tensor>;
  // Gives the gradients of `weights`, in that order, summed over all of
  // `microbatches`; undefined ones of those that it has put in their places
  // itself (gradient_place.h). A plain function, so that two layers' can be
  // compared; what else it needs to know (a stride) it finds in `settings`.
  using Function =
      std::vector<at::Tensor> (*)(const std::vector<at::Tensor>& weights,
                                  absl::Span<const Operands> microbatches,
                                  absl::Span<const int64_t> settings);

  std::vector<at::Tensor> weights;
  Function function = nullptr;
  std::vector<int64_t> settings = {};
  Operands operands = {};
  // Instead of all that, where nothing is won by computing several microbatches
  // at once. What it needs it holds.
  std::function<std::vector<at::Tensor>()> compute = {};
};

// A layer that can do its backward in two parts asks for Current() in forward,
// keeps a weak pointer to what it gets in its autograd node, and in backward,
// if MayDefer(weight), calls Defer instead of computing the weight's gradient,
// and gives autograd none. (Weak, because what is left may hold the graph: a
// sink that is never flushed, after an error, would hold itself.) A layer that
// knows nothing of this computes both at once. So what runs under a sink is for
// backward(): grad() with respect to a weight would not get what has been left.
//
// What is left issues no collective: ranks compute it at different moments, and
// one that lacks a microbatch has nothing to compute. What it needs of other
// ranks the layer's backward asks for, and leaves among the operands.
//
// Thread-safe: backward may run on any threads.
class WeightGradientSink {
 public:
  // While it lives, layers that the calling thread runs forward get `sink`.
  class Scope : public ComputeContext::Scope {
   public:
    explicit Scope(std::shared_ptr<WeightGradientSink> sink)
        : ComputeContext::Scope([&](ComputeContext& context) {
            context.sink = std::move(sink);
          }) {}
  };

  // The calling thread's; null outside of all scopes.
  static std::shared_ptr<WeightGradientSink> Current() {
    return ComputeContext::Current().sink;
  }

  // Is `weight` a leaf whose gradient accumulates, and backward not itself to
  // be differentiated?
  static bool MayDefer(const at::Tensor& weight);

  void Defer(DeferredGradients gradients);
  // The simple form: `compute` gives the gradient of `weight`.
  void Defer(at::Tensor weight, std::function<at::Tensor()> compute);

  // Computes what was left, in that order, and hands each weight's gradient to
  // autograd's accumulator of it, once: it is added to grad(), and whoever
  // waits for that gradient (FlatBuffer, and so the reducer) hears of it.
  // LibTorch's errors; the rest is dropped then.
  absl::Status Flush();

  // The same for several sinks, one a microbatch, in their order. What was left
  // for the same weights by the same function is computed in one call (for a
  // linear layer: one product over the concatenation of the microbatches, which
  // takes memory for that); all else is added up. Each weight's gradient is
  // handed over once, when it is complete.
  static absl::Status FlushTogether(
      absl::Span<const std::shared_ptr<WeightGradientSink>> sinks);

  // Weights whose gradients wait, each once for each gradient that was left;
  // and their number.
  std::vector<at::Tensor> weights() const;
  size_t size() const { return weights().size(); }

 private:
  std::vector<DeferredGradients> Take();

  mutable absl::Mutex mutex_;
  std::vector<DeferredGradients> deferred_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_WEIGHT_GRADIENT_SINK_H_
