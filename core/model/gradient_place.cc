#include "core/model/gradient_place.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "core/base/tensors.h"

namespace tandem {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Not for grad(), nor for some of the leaves alone.
bool AccumulatesForAll() {
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  return wanted == nullptr || wanted->empty();
}

bool HasOtherHooks(Node& accumulator) {
  return !accumulator.pre_hooks().empty() ||
         !accumulator.tensor_pre_hooks().empty() ||
         accumulator.tensor_post_acc_grad_hooks() != nullptr;
}

bool HasHooks(Node& node) {
  return !node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.post_hooks().empty() || !node.retains_grad_hooks().empty();
}

// The leaf behind a view whose gradient autograd hands on to that leaf as it
// is, and to nobody else.
at::Tensor LeafBehind(const at::Tensor& tensor) {
  const at::Tensor leaf = ViewedLeaf(tensor);
  if (leaf.is_same(tensor)) return tensor;
  const c10::intrusive_ptr<Node>& view = tensor.grad_fn();
  const c10::intrusive_ptr<Node> accumulator =
      torch::autograd::impl::try_get_grad_accumulator(leaf);
  const bool hands_on =
      view != nullptr && accumulator != nullptr && view->num_outputs() == 1 &&
      view->next_edge(0).function == accumulator && !HasHooks(*view);
  return hands_on ? leaf : tensor;
}

// Autograd orders streams by the gradients that it hands on; none is.
bool IsOnDefaultStream(const at::Tensor& parameter) {
  const c10::Device device = parameter.device();
  if (device.is_cpu()) return true;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStream(device) == guard.getDefaultStream(device);
}

}  // namespace

bool GradientPlace::Put(const at::Tensor& given, Write write,
                        IsFinite is_finite) {
  if (at::GradMode::is_enabled()) return false;
  const at::Tensor parameter = LeafBehind(given);
  if (!parameter.is_leaf() || !parameter.requires_grad() ||
      !AccumulatesForAll() || !IsOnDefaultStream(parameter)) {
    return false;
  }
  const c10::intrusive_ptr<Node> accumulator =
      torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (accumulator == nullptr || HasOtherHooks(*accumulator)) return false;
  for (const auto& hook : accumulator->post_hooks()) {
    auto* place = dynamic_cast<GradientPlace*>(hook.get());
    if (place != nullptr && place->PutHere(write, is_finite)) return true;
  }
  return false;
}

void GradientPlace::Announce(const at::Tensor& parameter) {
  const c10::intrusive_ptr<Node> accumulator =
      torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (accumulator == nullptr) return;
  for (const auto& hook : accumulator->post_hooks()) {
    (*hook)(variable_list(), variable_list(1));
  }
}

bool GradientPlace::PutHere(Write write, IsFinite is_finite) {
  absl::MutexLock lock(&mutex_);
  const at::Tensor gradient = Find();
  if (!gradient.defined()) return false;
  write(gradient);
  Begin(is_finite);
  has_put_ = true;
  return true;
}

// Called with the gradients that went into the accumulator: none when backward
// reached the parameter with an undefined one.
variable_list GradientPlace::operator()(const variable_list& outputs,
                                        const variable_list& inputs) {
  bool has_put;
  {
    absl::MutexLock lock(&mutex_);
    has_put = std::exchange(has_put_, false);
  }
  const bool has_added = !inputs.empty() && inputs[0].defined();
  if (has_put || has_added) Complete(has_added);
  return outputs;
}

}  // namespace tandem
