#include "models/classification_loss.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/stack.h>

#include <optional>
#include <vector>

#include "core/loss/deferred_score.h"

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
DeferredScore ScoreOf(const at::Tensor& log_probabilities,
                      const at::Tensor& targets, const Ignored& ignored) {
  at::NoGradGuard no_grad;
  const at::Tensor none = ignored ? targets.eq(*ignored) : at::Tensor();
  const at::Tensor labels = ignored ? targets.masked_fill(none, 0) : targets;
  at::Tensor losses =
      log_probabilities.gather(1, labels.unsqueeze(1)).to(at::kDouble);
  if (ignored) losses = losses.masked_fill(none.unsqueeze(1), 0);
  at::Tensor correct = log_probabilities.argmax(1).eq(targets);
  if (ignored) correct = correct.logical_and(none.logical_not());
  std::vector<at::Tensor> sums = {losses.sum().neg(),
                                  correct.sum().to(at::kDouble)};
  Score known;
  if (ignored) {
    sums.push_back(none.logical_not().sum().to(at::kDouble));
  } else {
    known.count = targets.numel();
  }
  return DeferScore(known, at::stack(sums));
}

LossResult Loss(const at::Tensor& outputs, const at::Tensor& targets,
                const Ignored& ignored) {
  CheckShapes(outputs, targets);
  const at::Tensor rows = outputs.reshape({targets.numel(), outputs.size(-1)});
  const at::Tensor labels = targets.reshape({targets.numel()});
  const at::Tensor log_probabilities = at::log_softmax(rows, 1);
  const auto [score, sums] = ScoreOf(log_probabilities, labels, ignored);
  if (!ignored) return {at::nll_loss(log_probabilities, labels), score, sums};
  const at::Tensor mean = at::nll_loss(log_probabilities, labels, /*weight=*/{},
                                       at::Reduction::Mean, *ignored);
  // Of none it is NaN, which only the device knows yet.
  const at::Tensor is_none = labels.eq(*ignored).all();
  return {mean.masked_fill(is_none, 0), score, sums};
}

}  // namespace

LossResult CrossEntropy(const at::Tensor& outputs, const at::Tensor& targets) {
  return Loss(outputs, targets, std::nullopt);
}

LossFunction CrossEntropyIgnoring(int64_t ignore_index) {
  return LossFunction(
      [ignore_index](const at::Tensor& outputs, const at::Tensor& targets) {
        return Loss(outputs, targets, ignore_index);
      },
      [ignore_index](const at::Tensor& targets) {
        return targets.ne(ignore_index).sum().item<double>();
      });
}

}  // namespace tandem
