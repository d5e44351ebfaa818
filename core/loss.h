// Loss function: what a model is trained to make small, and how much one batch
// of it weighs among others.

#ifndef TANDEM_CORE_LOSS_H_
#define TANDEM_CORE_LOSS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include "core/batch.h"

namespace tandem {

// The loss of a batch, ready for backward, and what to report of it.
struct LossResult {
  at::Tensor loss;  // scalar: the mean over the predictions
  Score score;      // `loss_sum` is a double sum of what `loss` is the mean of
};

// Differentiable in `outputs`. Throws LibTorch's exception when the two do not
// fit each other; who calls it turns that into a Status.
//
// A batch is computed in parts (microbatches, replicas), whose losses are means
// over their own predictions. Where every sample has as many predictions, parts
// weigh by their samples, and a function is all that is needed. A loss that
// leaves predictions out (padding, ignore_index), or weighs them, says by
// `weight` how much the mean over some targets weighs: the number of targets
// that count, or the sum of their weights. Parts then weigh by that, and
// gradients are those of the uncut batch.
class LossFunction {
 public:
  using Loss = std::function<LossResult(const at::Tensor& outputs,
                                        const at::Tensor& targets)>;
  // Finite, not negative; targets lie where the batch has them. Of weight 0 the
  // loss has no part in the gradient, and may be NaN.
  using Weight = std::function<double(const at::Tensor& targets)>;

  LossFunction() = default;
  LossFunction(std::nullptr_t) {}
  // From whatever Loss can hold.
  template <typename F,
            typename = std::enable_if_t<
                !std::is_same_v<F, LossFunction> &&
                std::is_invocable_r_v<LossResult, F&, const at::Tensor&,
                                      const at::Tensor&>>>
  LossFunction(F loss) : loss_(std::move(loss)) {}
  LossFunction(Loss loss, Weight weight)
      : loss_(std::move(loss)), weight_(std::move(weight)) {}

  // A score without predictions has a sum of 0, whatever the mean over none is.
  LossResult operator()(const at::Tensor& outputs,
                        const at::Tensor& targets) const;

  explicit operator bool() const { return loss_ != nullptr; }

  // Null: by samples.
  const Weight& weight() const { return weight_; }

 private:
  Loss loss_;
  Weight weight_;
};

// `loss` of `outputs`, `weight` times. Of weight 0 it is 0 and gives the
// outputs gradients of 0, even where the loss is NaN.
at::Tensor WeighLoss(const at::Tensor& loss, double weight,
                     const at::Tensor& outputs);

}  // namespace tandem

#endif  // TANDEM_CORE_LOSS_H_
