#include "parallel/data_parallel/gradient_watch.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "absl/algorithm/container.h"

namespace tandem {
namespace {

class TellOfGradient : public torch::autograd::FunctionPostHook {
 public:
  explicit TellOfGradient(std::shared_ptr<std::atomic<bool>> came)
      : came_(std::move(came)) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    came_->store(true);
    return outputs;
  }

 private:
  const std::shared_ptr<std::atomic<bool>> came_;
};

}  // namespace

void GradientWatch::Watch(const std::vector<at::Tensor>& parameters) {
  parameters_ = parameters;
  for (const at::Tensor& each : parameters_) {
    if (!each.is_leaf() || !each.requires_grad()) continue;
    auto accumulator = torch::autograd::impl::grad_accumulator(each);
    if (absl::c_linear_search(accumulators_, accumulator)) continue;
    accumulator->add_post_hook(std::make_unique<TellOfGradient>(came_));
    accumulators_.push_back(std::move(accumulator));
  }
}

bool GradientWatch::MayHaveChanged() {
  const bool has_one = absl::c_any_of(parameters_, [](const auto& each) {
    // What is computed has no gradient of its own to tell by.
    return !each.is_leaf() || each.grad().defined();
  });
  const bool came = came_->exchange(false);
  const bool had_one = std::exchange(had_one_, has_one);
  return came || had_one || has_one;
}

}  // namespace tandem
