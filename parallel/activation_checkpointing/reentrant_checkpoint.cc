#include "parallel/activation_checkpointing/reentrant_checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <memory>
#include <utility>

#include "parallel/activation_checkpointing/recompute_context.h"
#include "parallel/activation_checkpointing/saved_tensor_hooks.h"

namespace tandem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr char kCall[] = "call";

struct Call : torch::CustomClassHolder {
  Call(const CheckpointOptions& given_options,
       std::function<variable_list(const variable_list&)> given_function,
       const variable_list& inputs)
      : options(given_options),
        function(std::move(given_function)),
        recompute(inputs, given_options.preserve_rng_state) {}

  variable_list First(const variable_list& inputs) {
    const AutocastWithoutCache no_cache;
    const RecomputeContext::Recording recording(&recompute);
    return function(inputs);
  }

  variable_list Recompute(const variable_list& inputs) const {
    const RecomputeContext::Scope scope(recompute);
    const at::AutoGradMode with_graph(true);
    std::shared_ptr<void> context;
    if (options.recompute_context) context = options.recompute_context();
    return function(inputs);
  }

  const CheckpointOptions options;
  const std::function<variable_list(const variable_list&)> function;
  RecomputeContext recompute;
};

void CheckWholeBackward(const CheckpointOptions& options) {
  TORCH_CHECK(
      torch::autograd::Engine::get_default_engine().is_checkpoint_valid(),
      "re-entrant checkpointing of ", options.name,
      " is for backward() of a whole graph, not for torch::autograd::grad or "
      "backward() to given inputs: leave use_reentrant off");
}

variable_list DetachedLeaves(const variable_list& saved) {
  variable_list leaves;
  for (const at::Tensor& each : saved) {
    leaves.push_back(each.detach().requires_grad_(each.requires_grad()));
  }
  return leaves;
}

// Backward of the outputs that have a graph and a gradient.
void BackwardWithin(const variable_list& outputs,
                    const variable_list& gradients) {
  variable_list roots, root_gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
    roots.push_back(outputs[i]);
    root_gradients.push_back(gradients[i]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
}

// The first input is nobody's: it requires a gradient, so that there is a
// backward even where parameters alone take one.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<Call>& call) {
    const variable_list own = inputs.slice(1).vec();
    context->save_for_backward(own);
    context->saved_data[kCall] = c10::IValue::make_capsule(call);
    context->set_materialize_grads(false);
    return call->First(own);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const auto capsule = context->saved_data[kCall].toCapsule();
    const auto& call = static_cast<const Call&>(*capsule);
    CheckWholeBackward(call.options);
    const SavedTensorHooksScope no_hooks(nullptr);
    const variable_list inputs = DetachedLeaves(context->get_saved_variables());
    const variable_list outputs = call.Recompute(inputs);
    TORCH_CHECK(outputs.size() == gradients.size(), call.options.name,
                " has given ", gradients.size(), " tensors, but ",
                outputs.size(), " when it was computed again");
    BackwardWithin(outputs, gradients);
    variable_list results = {at::Tensor()};
    for (const at::Tensor& each : inputs) results.push_back(each.grad());
    results.emplace_back();  // the call's
    return results;
  }
};

}  // namespace

std::vector<at::Tensor> ReentrantCheckpoint(
    const CheckpointOptions& options,
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>
        function,
    const std::vector<at::Tensor>& inputs) {
  variable_list all = {at::empty({0}).requires_grad_()};
  all.insert(all.end(), inputs.begin(), inputs.end());
  return Reentrant::apply(
      at::TensorList(all),
      c10::make_intrusive<Call>(options, std::move(function), inputs));
}

bool IsReentrantCheckpoint(const torch::autograd::Node& node) {
  return dynamic_cast<const torch::autograd::CppNode<Reentrant>*>(&node) !=
         nullptr;
}

}  // namespace tandem
