#include "models/functions/split_backward.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <utility>

#include "core/model/weight_gradient_sink.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

class SplitBackward : public torch::autograd::Node, public SplitNode {
 public:
  SplitBackward(const at::Tensor& x, const at::Tensor& weight,
                const at::Tensor& bias, SplitOperator operation)
      : x_(x, /*is_output=*/false),
        weight_(weight, /*is_output=*/false),
        bias_(bias),
        operation_(std::move(operation)),
        sink_(WeightGradientSink::Current()) {}

  std::string name() const override { return operation_.name; }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!gradients[0].defined()) return variable_list(3);
    const Operands operands = {gradients[0], x_.unpack(getptr()),
                               weight_.unpack(getptr())};
    const WantedGradients wanted = {task_should_compute_output(0),
                                    task_should_compute_output(1),
                                    task_should_compute_output(2)};
    OperatorGradients results;
    const auto sink = SinkFor(operands.weight, wanted);
    if (sink == nullptr) {
      results = Compute(operands, wanted);
    } else if (operation_.weights_come_with_input && wanted[0]) {
      results = Compute(operands, wanted);
      LeaveComputed(operands.weight, results, *sink);
    } else {
      if (wanted[0]) results = Compute(operands, {true, false, false});
      Leave(operands, wanted, *sink);
    }
    return variable_list(results.begin(), results.end());
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    x_.reset_data();
    weight_.reset_data();
    operation_.backward = nullptr;  // it may hold what forward has kept
  }

 private:
  struct Operands {
    at::Tensor dy, x, weight;
  };

  // Null, where nothing is to be left.
  std::shared_ptr<WeightGradientSink> SinkFor(
      const at::Tensor& weight, const WantedGradients& wanted) const {
    const bool may_leave =
        (wanted[1] || wanted[2]) &&
        (!wanted[1] || WeightGradientSink::MayDefer(weight)) &&
        (!wanted[2] || WeightGradientSink::MayDefer(bias_));
    return may_leave ? sink_.lock() : nullptr;
  }

  OperatorGradients Compute(const Operands& operands,
                            const WantedGradients& wanted) const {
    return operation_.backward(operands.dy, operands.x, operands.weight,
                               wanted);
  }

  // Takes those of weight and bias out of `results`.
  void LeaveComputed(const at::Tensor& weight, OperatorGradients& results,
                     WeightGradientSink& sink) {
    DeferredGradients later;
    std::vector<at::Tensor> left;
    for (int i : {1, 2}) {
      if (!results[i].defined()) continue;
      later.weights.push_back(i == 1 ? weight : bias_);
      left.push_back(std::exchange(results[i], at::Tensor()));
    }
    later.compute = [left] { return left; };
    sink.Defer(std::move(later));
  }

  void Leave(const Operands& operands, const WantedGradients& wanted,
             WeightGradientSink& sink) {
    DeferredGradients later;
    if (wanted[1]) later.weights.push_back(operands.weight);
    if (wanted[2]) later.weights.push_back(bias_);
    if (wanted[1] && operation_.joined != nullptr) {
      later.function = operation_.joined;
      later.settings = operation_.settings;
      later.operands = {operands.dy, operands.x};
    } else {
      later.compute = [backward = operation_.backward, operands, wanted] {
        OperatorGradients all =
            backward(operands.dy, operands.x, operands.weight,
                     {false, wanted[1], wanted[2]});
        std::vector<at::Tensor> results;
        for (int i : {1, 2}) {
          if (wanted[i]) results.push_back(std::move(all[i]));
        }
        return results;
      };
    }
    sink.Defer(std::move(later));
  }

  SavedVariable x_;
  SavedVariable weight_;
  at::Tensor bias_;  // for the sink alone
  SplitOperator operation_;
  const std::weak_ptr<WeightGradientSink> sink_;
};

}  // namespace

bool RecordsGradients(const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias) {
  return torch::autograd::compute_requires_grad(x, weight, bias);
}

bool WantsSplitBackward(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias) {
  return WeightGradientSink::Current() != nullptr && weight.defined() &&
         RecordsGradients(x, weight, bias);
}

at::Tensor WithSplitBackward(at::Tensor y, const at::Tensor& x,
                             const at::Tensor& weight, const at::Tensor& bias,
                             SplitOperator operation) {
  const auto node =
      c10::make_intrusive<SplitBackward>(x, weight, bias, std::move(operation));
  node->set_next_edges(torch::autograd::collect_next_edges(x, weight, bias));
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace tandem
