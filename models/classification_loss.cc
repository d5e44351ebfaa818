#include "models/classification_loss.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/stack.h>

#include <optional>
#include <vector>

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

// One transfer, whatever the device: all sums travel as doubles, which hold
// every count below 2^53.
Score ScoreOf(const at::Tensor& log_probabilities, const at::Tensor& targets,
              const Ignored& ignored) {
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
  if (ignored) sums.push_back(none.sum().to(at::kDouble));
  const at::Tensor all = at::stack(sums).cpu();
  const auto* values = all.const_data_ptr<double>();
  Score score;
  score.loss_sum = values[0];
  score.correct = static_cast<int64_t>(values[1]);
  score.count =
      targets.numel() - (ignored ? static_cast<int64_t>(values[2]) : 0);
  return score;
}

LossResult Loss(const at::Tensor& outputs, const at::Tensor& targets,
                const Ignored& ignored) {
  CheckShapes(outputs, targets);
  const at::Tensor rows = outputs.reshape({targets.numel(), outputs.size(-1)});
  const at::Tensor labels = targets.reshape({targets.numel()});
  const at::Tensor log_probabilities = at::log_softmax(rows, 1);
  const Score score = ScoreOf(log_probabilities, labels, ignored);
  if (!ignored) return {at::nll_loss(log_probabilities, labels), score};
  // The mean over none is NaN, the sum 0.
  const auto reduction =
      score.count == 0 ? at::Reduction::Sum : at::Reduction::Mean;
  return {at::nll_loss(log_probabilities, labels, /*weight=*/{}, reduction,
                       *ignored),
          score};
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
