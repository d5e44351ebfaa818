// LSTM, GRU and RNN, and cells of the first two, on simulated devices: the
// CPU's, whole, forward and backward. Their gradients have no gradients.

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/random/default_generator.h"
#include "core/sim/calls/call_aliases.h"
#include "core/sim/calls/operator_traits.h"
#include "core/sim/memory/block.h"
#include "core/sim/operators/register_operators.h"
#include "core/sim/streams/generator.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr char kName[] = "aten::recurrent network";  // in the books

// The device's generator that the calling thread draws from.
at::Generator GeneratorOn(int8_t device) {
  const at::Generator scoped = DefaultGeneratorScope::On(
      c10::Device(c10::DeviceType::PrivateUse1, device));
  return scoped.defined() ? scoped : DefaultGenerator(device);
}

// Dropout between layers, on the CPU, draws from the device's generator
// meanwhile: that of the host is other threads' too.
class GeneratorScope : public DefaultGeneratorScope {
 public:
  explicit GeneratorScope(at::Generator host)
      : DefaultGeneratorScope(/*seed=*/0), host_(std::move(host)) {}

 protected:
  at::Generator Make(c10::Device device) const override {
    return device.is_cpu() ? host_ : Outside(device);
  }

 private:
  const at::Generator host_;
};

// The tensors of a call's arguments in order; a list's follow each other.
variable_list ArgumentTensors(const torch::jit::Stack& arguments) {
  variable_list tensors;
  for (const c10::IValue& each : arguments) {
    if (each.isTensor()) tensors.push_back(each.toTensor());
    if (!each.isTensorList()) continue;
    for (const at::Tensor& one : each.toTensorVector()) tensors.push_back(one);
  }
  return tensors;
}

// The same arguments with other tensors in their places.
torch::jit::Stack WithTensors(torch::jit::Stack arguments,
                              const variable_list& tensors) {
  size_t next = 0;
  for (c10::IValue& each : arguments) {
    if (each.isTensor()) each = tensors[next++];
    if (!each.isTensorList()) continue;
    c10::List<at::Tensor> list;
    for (size_t i = each.toTensorVector().size(); i > 0; --i) {
      list.push_back(tensors[next++]);
    }
    each = list;
  }
  return arguments;
}

int8_t FirstDevice(const variable_list& tensors) {
  for (const at::Tensor& each : tensors) {
    if (each.device().type() == c10::DeviceType::PrivateUse1) {
      return each.device().index();
    }
  }
  return 0;
}

at::Tensor Leaf(const at::Tensor& tensor, bool requires_grad) {
  const bool simulated = tensor.device().type() == c10::DeviceType::PrivateUse1;
  return (simulated ? HostAlias(tensor) : tensor.detach())
      .set_requires_grad(requires_grad);
}

// In a graph of gradients: whoever differentiates it is told.
variable_list WithoutGradients(variable_list gradients) {
  if (!at::GradMode::is_enabled()) return gradients;
  for (at::Tensor& each : gradients) {
    if (each.defined()) each.set_requires_grad(true);
  }
  torch::autograd::DelayedError error(
      "simulated devices have no gradients of a recurrent network's gradients; "
      "use the CPU for it",
      static_cast<int64_t>(gradients.size()));
  return error(std::move(gradients));
}

// A call, and its CPU tensors once it has run.
struct Recurrence {
  explicit Recurrence(const c10::OperatorHandle& handle) : op(handle) {}

  c10::OperatorHandle op;
  torch::jit::Stack arguments;
  int8_t device = 0;
  variable_list leaves;
  variable_list outputs;
};

class RecurrentFunction : public torch::autograd::Function<RecurrentFunction> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const std::shared_ptr<Recurrence>& call) {
    const ChargeScope charge(call->device, kName);
    for (const at::Tensor& each : inputs) {
      call->leaves.push_back(Leaf(each, each.requires_grad()));
    }
    torch::jit::Stack stack = WithTensors(call->arguments, call->leaves);
    {
      const at::AutoGradMode with_graph(true);
      const c10::impl::ExcludeDispatchKeyGuard no_cast(
          c10::autocast_dispatch_keyset);
      // The guard under which autograd calls this leaves the graph out.
      const c10::impl::ForceDispatchKeyGuard afresh(
          c10::impl::LocalDispatchKeySet(c10::impl::PODLocalDispatchKeySet{}));
      // Within: it is a dispatch key of the thread's.
      const GeneratorScope generator(
          HostGenerator(GeneratorOn(call->device), call->device));
      call->op.callBoxed(stack);
    }
    call->arguments.clear();
    variable_list results;
    for (const c10::IValue& each : stack) {
      call->outputs.push_back(each.toTensor());
      CallAliases aliases;
      results.push_back(
          aliases.ToDevice(each.toTensor().detach(), call->device));
    }
    context->saved_data["call"] =
        c10::IValue::make_capsule(c10::make_intrusive<Holder>(call));
    return results;
  }

  static variable_list backward(AutogradContext* context,
                                variable_list gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<Holder>(
        context->saved_data["call"].toCapsule());
    const Recurrence& call = *holder->call;
    SynchroniseAll();
    const ChargeScope charge(call.device, kName);
    variable_list outputs, output_gradients, wanted;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined() || !call.outputs[i].requires_grad()) continue;
      outputs.push_back(call.outputs[i]);
      output_gradients.push_back(HostAlias(gradients[i]));
    }
    for (const at::Tensor& each : call.leaves) {
      if (each.requires_grad()) wanted.push_back(each);
    }
    const variable_list made = torch::autograd::grad(
        outputs, wanted, output_gradients, /*retain_graph=*/true,
        /*create_graph=*/false, /*allow_unused=*/true);
    variable_list results;
    size_t next = 0;
    for (const at::Tensor& each : call.leaves) {
      CallAliases aliases;
      results.push_back(each.requires_grad()
                            ? aliases.ToDevice(made[next++], call.device)
                            : at::Tensor());
    }
    results = WithoutGradients(std::move(results));
    results.emplace_back();  // of the call itself
    return results;
  }

 private:
  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<Recurrence> held) : call(std::move(held)) {}
    std::shared_ptr<Recurrence> call;
  };
};

class RecurrentKernel final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    SynchroniseAll();
    auto call = std::make_shared<Recurrence>(op);
    const size_t count = op.schema().arguments().size();
    call->arguments.assign(stack->end() - static_cast<std::ptrdiff_t>(count),
                           stack->end());
    stack->resize(stack->size() - count);
    const variable_list inputs = ArgumentTensors(call->arguments);
    call->device = FirstDevice(inputs);
    for (at::Tensor& each :
         RecurrentFunction::apply(at::TensorList(inputs), call)) {
      stack->emplace_back(std::move(each));
    }
  }
};

}  // namespace

void RegisterRecurrentOperators() {
  constexpr const char* kOperators[] = {
      "lstm.input",     "lstm.data",     "gru.input",      "gru.data",
      "rnn_tanh.input", "rnn_tanh.data", "rnn_relu.input", "rnn_relu.data",
      "lstm_cell",      "gru_cell"};
  for (const c10::DispatchKey key :
       {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1}) {
    torch::Library& library = NewLibrary("aten", key);
    for (const char* each : kOperators) {
      library.impl(each, torch::CppFunction::makeFromBoxedFunctor(
                             std::make_unique<RecurrentKernel>()));
    }
  }
}

}  // namespace sim
}  // namespace tandem
