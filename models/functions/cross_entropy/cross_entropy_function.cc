#include "models/functions/cross_entropy/cross_entropy_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "core/fused/cross_entropy.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Ignored where nothing is: out of range, so that no target has it. PyTorch's
// default, -100, would let padding through as targets of loss 0.
constexpr int64_t kNone = std::numeric_limits<int64_t>::min();

// What the fused kernels compute, by LibTorch's operators: in 16 bits a loss
// could be scaled by 65504 at most, and would have 3 digits.
at::Tensor Losses(const at::Tensor& logits, const at::Tensor& targets,
                  std::optional<int64_t> ignored) {
  const bool is_narrow = logits.element_size() < 4;
  const std::optional<at::ScalarType> wide =
      is_narrow ? std::make_optional(at::kFloat) : std::nullopt;
  return at::nll_loss(at::log_softmax(logits, 1, wide), targets, /*weight=*/{},
                      at::Reduction::None, ignored.value_or(kNone));
}

at::Tensor Right(const at::Tensor& logits, const at::Tensor& targets,
                 std::optional<int64_t> ignored) {
  const at::NoGradGuard no_grad;
  const at::Tensor right = logits.argmax(1).eq(targets);
  return ignored ? right.logical_and(targets.ne(*ignored)) : right;
}

class CrossEntropyBackward : public torch::autograd::Node {
 public:
  CrossEntropyBackward(const at::Tensor& logits, const at::Tensor& targets,
                       const at::Tensor& log_sums,
                       std::optional<int64_t> ignored)
      : logits_(logits, /*is_output=*/false),
        targets_(targets),
        log_sums_(log_sums),
        ignored_(ignored) {}

  std::string name() const override { return "CrossEntropyBackward"; }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!gradients[0].defined()) return variable_list(1);
    const at::Tensor logits = logits_.unpack(getptr());
    return {at::GradMode::is_enabled()
                ? Differentiable(gradients[0], logits)
                : FusedCrossEntropyBackward(gradients[0], logits, targets_,
                                            log_sums_, ignored_)};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    logits_.reset_data();
    log_sums_.reset();
  }

 private:
  at::Tensor Differentiable(const at::Tensor& dlosses,
                            const at::Tensor& logits) const {
    const at::Tensor labels =
        ignored_ ? targets_.masked_fill(targets_.eq(*ignored_), 0) : targets_;
    const at::Tensor wide = logits.to(at::kFloat);
    const at::Tensor hits =
        at::zeros_like(wide).scatter(1, labels.unsqueeze(1), 1);
    const at::Tensor d =
        ignored_ ? dlosses.masked_fill(targets_.eq(*ignored_), 0) : dlosses;
    return ((at::softmax(wide, 1) - hits) * d.unsqueeze(1))
        .to(logits.scalar_type());
  }

  SavedVariable logits_;
  at::Tensor targets_;
  at::Tensor log_sums_;
  std::optional<int64_t> ignored_;
};

}  // namespace

CrossEntropyResult CrossEntropyFunction(const at::Tensor& logits,
                                        const at::Tensor& targets,
                                        std::optional<int64_t> ignored) {
  if (!IsForFusedKernels(logits)) {
    return {Losses(logits, targets, ignored), Right(logits, targets, ignored)};
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> results;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    results = FusedCrossEntropy(logits, targets, ignored);
  }
  auto& [losses, log_sums, right] = results;
  if (torch::autograd::compute_requires_grad(logits)) {
    const auto node = c10::make_intrusive<CrossEntropyBackward>(
        logits, targets, log_sums, ignored);
    node->set_next_edges(torch::autograd::collect_next_edges(logits));
    torch::autograd::set_history(losses, node);
  }
  return {losses, right};
}

}  // namespace tandem
