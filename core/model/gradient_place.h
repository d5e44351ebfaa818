// Gradient places: where the gradients of parameters are to lie, for functions
// that write them there themselves instead of giving autograd a tensor of their
// own, which is then copied or added (Megatron's gradient accumulation fusion).
// Functions know this alone, not whose memory it is.

#ifndef TANDEM_CORE_MODEL_GRADIENT_PLACE_H_
#define TANDEM_CORE_MODEL_GRADIENT_PLACE_H_

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// A hook on a parameter's gradient accumulator, made by who owns the memory.
// The accumulator runs, and its hooks, when every function that has a part in
// the gradient has given it or put it: so whoever waits for the gradient hears
// of it once, when it is whole.
//
// Thread-safe: backward may run on any threads.
class GradientPlace : public torch::autograd::FunctionPostHook {
 public:
  // Writes a gradient, over whatever lies there.
  using Write = absl::FunctionRef<void(const at::Tensor& gradient)>;
  // Whether all its elements are sure to be finite, and far from infinite: sums
  // with others of which the same is said are finite, too. False: it is not
  // known. Called where somebody asks, once it is written.
  using IsFinite = absl::FunctionRef<bool()>;

  // Has `write` put a gradient of `parameter` (with its sizes and strides), and
  // returns true, if it has a place, no gradient lies there yet, and nobody but
  // that place is to see this one: backward is neither recorded nor for grad(),
  // runs on the device's default stream, and there are no hooks on the
  // parameter. Else does nothing. A function whose gradient has been put gives
  // autograd none. A view of all of a parameter stands for it, if there are no
  // hooks on the view either.
  //
  // What comes to a gradient that is there, autograd adds: it sums what one
  // backward gives first, and bits are not to depend on who puts.
  static bool Put(
      const at::Tensor& parameter, Write write,
      IsFinite is_finite = [] { return false; });

  // Tells the hooks of the parameter's accumulator what they hear of autograd
  // when the accumulator has run without a gradient. For functions that put
  // gradients outside of a backward.
  static void Announce(const at::Tensor& parameter);

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& inputs) final;

 protected:
  // Where a gradient is to lie; undefined if there is no place any more, or a
  // gradient already.
  virtual at::Tensor Find() = 0;
  // What lies there now is a gradient.
  virtual void Begin(IsFinite is_finite) = 0;
  // The gradient is whole: all parts have been put, or added by the accumulator
  // (`has_added`).
  virtual void Complete(bool has_added) = 0;

 private:
  bool PutHere(Write write, IsFinite is_finite);

  absl::Mutex mutex_;
  bool has_put_ ABSL_GUARDED_BY(mutex_) = false;  // since the last time
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_GRADIENT_PLACE_H_
