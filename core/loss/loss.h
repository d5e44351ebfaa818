// Loss function: what a model is trained to make small, and how much one batch
// of it weighs among others; and its score, which is read late.

#ifndef TANDEM_CORE_LOSS_LOSS_H_
#define TANDEM_CORE_LOSS_LOSS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/model/batch.h"

namespace tandem {

// Deferred score: some numbers still lie on a device. Whoever needs them waits
// for that device, so they are read as late, and as many at once, as can be.
struct DeferredScore {
  Score known;
  // To be added to it: doubles, [2] (loss_sum, correct) or [3] (and count).
  // Undefined: nothing.
  at::Tensor sums = {};
};

// Throws c10::Error for anything else.
void CheckSums(const at::Tensor& sums);
bool HasCount(const at::Tensor& sums);

// `known` and `sums`: added up where they are on the host already.
DeferredScore DeferScore(const Score& known, const at::Tensor& sums);

// `score` in full, given what its `sums` hold, if they are defined, which
// `numbers` is moved behind. One without predictions has a sum of 0.
Score FullScore(const DeferredScore& score, const double*& numbers);

// Each of them in full; one copy from each device, if there is anything to
// copy.
std::vector<Score> ReadScores(const std::vector<DeferredScore>& scores);

// The loss of a batch, ready for backward, and what to report of it.
struct LossResult {
  at::Tensor loss;  // scalar: the mean over the predictions
  Score score;      // `loss_sum` is a double sum of what `loss` is the mean of
  // What is still to be added to the score and lies on a device
  // (DeferredScore). Undefined: nothing. Strategies read it once a
  // step, so that no microbatch waits for the device. A loss without a weight
  // gives `score.count` at once, or it is waited for.
  at::Tensor sums = {};
};

using TensorsByName = std::map<std::string, at::Tensor>;

// What a loss takes beside the last layer's output and the batch's targets.
struct LossNames {
  // Tensors that layers leave for others (LayerLinks::stash), as a layer
  // behind the last one would take them, with gradients.
  std::vector<std::string> outputs = {};
  // Tensors of Batch::further_targets, named as in core/model/batch_inputs.h:
  // "mask", "boxes[0]".
  std::vector<std::string> targets = {};
};

// A batch's targets. For a function of one tensor it is that tensor.
struct LossTargets {
  LossTargets(at::Tensor target = {}, TensorsByName further_targets = {})
      : targets(std::move(target)), further(std::move(further_targets)) {}
  operator const at::Tensor&() const { return targets; }

  at::Tensor targets;
  TensorsByName further;
};

// What a loss is computed from: [size, ...] each, on one device.
struct LossArguments {
  at::Tensor outputs;
  TensorsByName further_outputs;
  at::Tensor targets;
  TensorsByName further_targets;
};

// Differentiable in outputs and further outputs. Throws LibTorch's exception
// when its arguments do not fit each other; who calls it turns that into a
// Status.
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
  using NamedLoss = std::function<LossResult(const LossArguments& arguments)>;
  // By the targets, given as LossTargets or as a tensor, which lie where the
  // batch has them (each microbatch's on a device is waited for, before the
  // step: leave them on the host): finite, not negative. With weight 0 the loss
  // has no part in the gradient, and may be NaN.
  using Weight = std::function<double(const LossTargets& targets)>;

  LossFunction() = default;
  LossFunction(std::nullptr_t) {}
  // From whatever Loss can hold.
  template <typename F,
            typename = std::enable_if_t<
                !std::is_same_v<F, LossFunction> &&
                std::is_invocable_r_v<LossResult, F&, const at::Tensor&,
                                      const at::Tensor&>>>
  LossFunction(F loss) : LossFunction(Loss(std::move(loss)), nullptr) {}
  LossFunction(Loss loss, Weight weight);
  // With several outputs or targets; all that `names` says are there.
  LossFunction(LossNames names, NamedLoss loss, Weight weight = nullptr)
      : names_(std::move(names)),
        loss_(std::move(loss)),
        weight_(std::move(weight)) {}

  // A score without predictions has a sum of 0, whatever the mean over none is.
  LossResult operator()(const LossArguments& arguments) const;
  LossResult operator()(const at::Tensor& outputs,
                        const at::Tensor& targets) const {
    return (*this)({outputs, {}, targets, {}});
  }

  // Says that `loss` takes outputs in bf16 or fp16, too, and computes in float
  // all the same. Under mixed precision others get them as floats.
  static LossFunction OfAnyPrecision(LossFunction loss) {
    loss.takes_any_precision_ = true;
    return loss;
  }

  // Says that evaluation reports `evaluation` where `trained` is trained: the
  // loss without what is for training alone (label smoothing). Both have the
  // same names and weigh alike.
  static LossFunction EvaluatedBy(LossFunction trained,
                                  LossFunction evaluation);

  explicit operator bool() const { return loss_ != nullptr; }

  // Null: by samples.
  const Weight& weight() const { return weight_; }
  const LossNames& names() const { return names_; }
  // What evaluation reports: itself, unless EvaluatedBy says otherwise.
  const LossFunction& evaluation() const {
    return evaluation_ == nullptr ? *this : *evaluation_;
  }

 private:
  LossNames names_;
  NamedLoss loss_;
  Weight weight_;
  bool takes_any_precision_ = false;
  std::shared_ptr<const LossFunction> evaluation_;  // null: itself
};

// All of it on the device of `outputs`. Throws c10::Error where there are no
// targets at all.
LossArguments MakeLossArguments(const at::Tensor& outputs,
                                const TensorsByName& further_outputs,
                                const LossTargets& targets);

// `loss` of `outputs`, and of further ones on their device, `weight` times.
// With weight 0 it is 0 and gives them gradients of 0, even where the loss is
// NaN.
at::Tensor WeighLoss(const at::Tensor& loss, double weight,
                     const at::Tensor& outputs,
                     const TensorsByName& further_outputs = {});

}  // namespace tandem

#endif  // TANDEM_CORE_LOSS_LOSS_H_
