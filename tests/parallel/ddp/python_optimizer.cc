#include "tests/parallel/ddp/python_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "absl/types/variant.h"

namespace tandem {

PythonOptimizer::PythonOptimizer(const OptimizerOptions& options,
                                 std::vector<at::Tensor> parameters)
    : options_(options), parameters_(std::move(parameters)) {
  for (const at::Tensor& parameter : parameters_) {
    first_.push_back(at::zeros_like(parameter.detach()));
    second_.push_back(at::zeros_like(parameter.detach()));
    steps_.push_back(at::zeros({}, parameter.device()));
  }
}

PythonOptimizer::Lists PythonOptimizer::WithGradients() const {
  Lists lists;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) continue;
    lists.parameters.push_back(parameters_[i]);
    lists.gradients.push_back(parameters_[i].grad());
    lists.first.push_back(first_[i]);
    lists.second.push_back(second_[i]);
    lists.steps.push_back(steps_[i]);
  }
  return lists;
}

void PythonOptimizer::Step(double learning_rate) {
  at::NoGradGuard no_grad;
  Lists lists = WithGradients();
  if (const auto* sgd = absl::get_if<SgdOptions>(&options_)) {
    at::_fused_sgd_(lists.parameters, lists.gradients, lists.first,
                    sgd->weight_decay, sgd->momentum, learning_rate,
                    sgd->dampening, sgd->nesterov, /*maximize=*/false,
                    /*is_first_step=*/!stepped_);
  } else {
    const auto& adamw = absl::get<AdamWOptions>(options_);
    for (at::Tensor& step : lists.steps) step.add_(1);
    at::_fused_adamw_(lists.parameters, lists.gradients, lists.first,
                      lists.second, /*max_exp_avg_sqs=*/{}, lists.steps,
                      learning_rate, adamw.beta1, adamw.beta2,
                      adamw.weight_decay, adamw.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
  stepped_ = true;
}

}  // namespace tandem
