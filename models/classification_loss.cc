#include "models/classification_loss.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/stack.h>

namespace tandem {
namespace {

void CheckShapes(const at::Tensor& outputs, const at::Tensor& targets) {
  TORCH_CHECK(outputs.dim() == targets.dim() + 1 && targets.dim() >= 1 &&
                  outputs.sizes().slice(0, targets.dim()) == targets.sizes(),
              "cross entropy of logits ", outputs.sizes(), " and targets ",
              targets.sizes(), ": the logits need the targets' shape and, ",
              "behind it, the classes");
}

// One transfer, whatever the device: both sums travel as doubles, which hold
// every count below 2^53.
Score ScoreOf(const at::Tensor& log_probabilities, const at::Tensor& targets) {
  at::NoGradGuard no_grad;
  const at::Tensor losses =
      log_probabilities.gather(1, targets.unsqueeze(1)).to(at::kDouble);
  const at::Tensor correct = log_probabilities.argmax(1).eq(targets);
  const at::Tensor sums =
      at::stack({losses.sum().neg(), correct.sum().to(at::kDouble)}).cpu();
  Score score;
  score.loss_sum = sums.data_ptr<double>()[0];
  score.correct = static_cast<int64_t>(sums.data_ptr<double>()[1]);
  score.count = targets.numel();
  return score;
}

}  // namespace

LossResult CrossEntropy(const at::Tensor& outputs, const at::Tensor& targets) {
  CheckShapes(outputs, targets);
  const at::Tensor rows = outputs.reshape({targets.numel(), outputs.size(-1)});
  const at::Tensor labels = targets.reshape({targets.numel()});
  const at::Tensor log_probabilities = at::log_softmax(rows, 1);
  return {at::nll_loss(log_probabilities, labels),
          ScoreOf(log_probabilities, labels)};
}

}  // namespace tandem
