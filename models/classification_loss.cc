#include "models/classification_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>

#include <utility>
#include <vector>

#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"

namespace tandem {
namespace {

void CheckShapes(const at::Tensor& outputs, const at::Tensor& targets) {
  TORCH_CHECK(outputs.dim() == targets.dim() + 1 && targets.dim() >= 1 &&
                  outputs.sizes().slice(0, targets.dim()) == targets.sizes(),
              "cross entropy of logits ", outputs.sizes(), " and targets ",
              targets.sizes(), ": the logits need the targets' shape and, ",
              "behind it, the classes");
}

// What counts: all targets, or those that are not ignored.
using Ignored = std::optional<int64_t>;

// All sums are doubles, which hold every count below 2^53.
DeferredScore DeferredResult(const CrossEntropyResult& result,
                             const at::Tensor& targets,
                             const Ignored& ignored) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums = {result.losses.to(at::kDouble).sum(),
                                  result.right.sum().to(at::kDouble)};
  Score known;
  if (ignored) {
    sums.push_back(targets.ne(*ignored).sum().to(at::kDouble));
  } else {
    known.count = targets.numel();
  }
  return DeferScore(known, at::stack(sums));
}

LossResult Reduced(const CrossEntropyResult& result, const at::Tensor& labels,
                   const Ignored& ignored) {
  const auto [score, sums] = DeferredResult(result, labels, ignored);
  if (!ignored) return {result.losses.mean(), score, sums};
  // How many are left only the device knows yet.
  const at::Tensor count = labels.ne(*ignored).sum().clamp_min(1);
  return {result.losses.sum() / count, score, sums};
}

// What label smoothing adds to the loss of each row, per share that is
// smoothed: by how much the target's logit is above their mean.
at::Tensor TargetsAboveMeans(const at::Tensor& logits, const at::Tensor& labels,
                             const Ignored& ignored) {
  at::Tensor index = labels;
  at::Tensor is_ignored;
  if (ignored) {
    is_ignored = labels.eq(*ignored);
    index = labels.masked_fill(is_ignored, 0);
  }
  const at::Tensor above =
      logits.gather(1, index.unsqueeze(1)).squeeze(1) - logits.mean(1);
  return ignored ? above.masked_fill(is_ignored, 0) : above;
}

LossResult Loss(const at::Tensor& outputs, const at::Tensor& targets,
                const Ignored& ignored, double label_smoothing = 0) {
  CheckShapes(outputs, targets);
  const at::Tensor rows = outputs.reshape({targets.numel(), outputs.size(-1)});
  const at::Tensor labels = targets.reshape({targets.numel()});
  CrossEntropyResult result = CrossEntropyFunction(rows, labels, ignored);
  if (label_smoothing > 0) {
    result.losses =
        result.losses +
        TargetsAboveMeans(rows, labels, ignored).mul(label_smoothing);
  }
  return Reduced(result, labels, ignored);
}

}  // namespace

LossFunction WithZLoss(LossFunction loss, double coefficient) {
  const LossFunction evaluation = loss.evaluation();
  LossFunction trained(
      evaluation.names(),
      [loss = std::move(loss), coefficient](const LossArguments& arguments) {
        AddAuxiliaryLoss("z_loss", at::logsumexp(arguments.outputs, -1)
                                       .square()
                                       .mean()
                                       .mul(coefficient));
        return loss(arguments);
      },
      evaluation.weight());
  return LossFunction::EvaluatedBy(std::move(trained), evaluation);
}

LossResult CrossEntropy(const at::Tensor& outputs, const at::Tensor& targets) {
  return Loss(outputs, targets, std::nullopt);
}

LossFunction CrossEntropyOfRows(LossNames names, CrossEntropyRows rows_of,
                                std::optional<int64_t> ignore_index) {
  LossFunction::Weight weight;
  if (ignore_index) weight = CrossEntropyIgnoring(*ignore_index).weight();
  return LossFunction::OfAnyPrecision(LossFunction(
      std::move(names),
      [rows_of = std::move(rows_of),
       ignore_index](const LossArguments& arguments) {
        const at::Tensor labels = arguments.targets.flatten();
        return Reduced(rows_of(arguments, labels), labels, ignore_index);
      },
      weight));
}

LossFunction CrossEntropyIgnoring(int64_t ignore_index) {
  return LossFunction::OfAnyPrecision(LossFunction(
      [ignore_index](const at::Tensor& outputs, const at::Tensor& targets) {
        return Loss(outputs, targets, ignore_index);
      },
      [ignore_index](const at::Tensor& targets) {
        return targets.ne(ignore_index).sum().item<double>();
      }));
}

LossFunction SmoothedCrossEntropy(double label_smoothing,
                                  std::optional<int64_t> ignore_index) {
  LossFunction plain = ignore_index
                           ? CrossEntropyIgnoring(*ignore_index)
                           : LossFunction::OfAnyPrecision(CrossEntropy);
  if (label_smoothing == 0) return plain;
  LossFunction trained(
      [=](const at::Tensor& outputs, const at::Tensor& targets) {
        return Loss(outputs, targets, ignore_index, label_smoothing);
      },
      plain.weight());
  return LossFunction::EvaluatedBy(std::move(trained), std::move(plain));
}

}  // namespace tandem
