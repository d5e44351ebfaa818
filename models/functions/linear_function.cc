#include "models/functions/linear_function.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/model/axis/axis_functions.h"
#include "core/model/gradient_place.h"
#include "core/model/weight_gradient_sink.h"
#include "core/precision/autocast.h"
#include "core/precision/low_precision_copy.h"
#include "models/functions/matrix_product.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// [..., n] -> [rows, n]
at::Tensor Rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor Forward(const at::Tensor& x, const at::Tensor& weight,
                   const at::Tensor& bias, WeightLayout layout) {
  const at::Tensor factor =
      layout == WeightLayout::kOutIn ? weight.t() : weight;
  if (x.dim() == 2) return MatrixProduct(x, factor, bias);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = factor.size(1);
  return MatrixProduct(Rows(x), factor, bias).view(shape);
}

struct Factors {
  at::Tensor a, b;
};

// Factors of the weight's gradient.
Factors GradientFactors(const at::Tensor& dy, const at::Tensor& rows,
                        WeightLayout layout) {
  if (layout == WeightLayout::kOutIn) return {dy.t(), rows};
  return {rows.t(), dy};
}

// The gradient has the weight's dtype, whatever that of dy and rows. Undefined,
// if it has been put in its place.
at::Tensor WeightGradient(const at::Tensor& weight, const at::Tensor& dy,
                          const at::Tensor& rows, WeightLayout layout) {
  const Factors factors = GradientFactors(dy, rows, layout);
  const bool has_put = GradientPlace::Put(
      weight,
      [&](const at::Tensor& gradient) {
        PutMatrixProduct(gradient, factors.a, factors.b);
      },
      [&] { return HasFiniteProduct(factors.a, factors.b); });
  return has_put ? at::Tensor()
                 : MatrixProductIn(weight.scalar_type(), factors.a, factors.b);
}

at::Tensor BiasGradient(const at::Tensor& dy, at::ScalarType dtype) {
  return at::sum(dy, /*dim=*/0, /*keepdim=*/false, dtype);
}

// Operands: {dy, x} as matrices, or {dy} for the bias alone. Settings: {whether
// the layout is kOutIn}.
std::vector<at::Tensor> JoinedGradients(
    const std::vector<at::Tensor>& weights,
    absl::Span<const DeferredGradients::Operands> microbatches,
    absl::Span<const int64_t> settings) {
  const auto operands = JoinOperands(microbatches);
  std::vector<at::Tensor> gradients;
  if (operands.size() > 1) {
    gradients.push_back(WeightGradient(
        weights[0], operands[0], operands[1],
        settings[0] ? WeightLayout::kOutIn : WeightLayout::kInOut));
  }
  if (gradients.size() < weights.size()) {
    gradients.push_back(
        BiasGradient(operands[0], weights.back().scalar_type()));
  }
  return gradients;
}

// What forward has multiplied: of one dtype, that of the result.
struct Operands {
  at::Tensor x, weight, bias;
};

// Autocast's dtype, else theirs.
Operands LinearOperands(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias) {
  const c10::DeviceType type = x.device().type();
  if (!CurrentAutocast(type).is_enabled) return {x, weight, bias};
  const at::ScalarType dtype = AutocastDtype(type, x.scalar_type());
  const at::Tensor input = x.to(dtype);
  const at::NoGradGuard no_grad;  // LowPrecisionCopy asks
  return {input, LowPrecisionCopy(weight, dtype),
          bias.defined() ? LowPrecisionCopy(bias, dtype) : bias};
}

// Where backward is itself differentiated, what it calls records gradients.
class LinearBackward : public torch::autograd::Node, public SplitNode {
 public:
  LinearBackward(const Operands& operands, const at::Tensor& weight,
                 const at::Tensor& bias, WeightLayout layout)
      : x_sizes_(operands.x.sizes().vec()),
        weight_(weight, /*is_output=*/false),
        layout_(layout),
        sink_(WeightGradientSink::Current()) {
    // Nothing else needs what a frozen weight was multiplied with.
    if (weight.requires_grad()) Keep(operands.x);
    if (bias.defined()) bias_dtype_ = bias.scalar_type();
    if (WeightGradientSink::Current() != nullptr) bias_ = bias;
  }

  std::string name() const override { return "LinearBackward"; }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(3);
    if (!gradients[0].defined()) return results;
    const at::Tensor dy = Rows(gradients[0]);
    if (task_should_compute_output(0)) results[0] = InputGradient(dy);
    const bool wants_weight = task_should_compute_output(1);
    const bool wants_bias = num_outputs() > 2 && task_should_compute_output(2);
    if (!wants_weight && !wants_bias) return results;
    const at::Tensor weight = weight_.unpack(getptr());
    const at::Tensor rows = wants_weight ? Rows(Input()) : at::Tensor();
    if (const auto sink = SinkFor(weight, wants_weight, wants_bias)) {
      Leave(dy, rows, weight, wants_weight, wants_bias, *sink);
      return results;
    }
    if (wants_weight) results[1] = WeightGradient(weight, dy, rows, layout_);
    if (wants_bias) results[2] = BiasGradient(dy, bias_dtype_);
    return results;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    x_.reset_data();
    gathered_.reset();
    weight_.reset_data();
    bias_.reset();
  }

 private:
  void Keep(const at::Tensor& x) {
    gathered_ = GatheredInput(x);
    if (!gathered_) x_ = SavedVariable(x, /*is_output=*/false);
  }

  at::Tensor Input() {
    return gathered_ ? gathered_.Gather() : x_.unpack(getptr());
  }

  // Null, where nothing is to be left.
  std::shared_ptr<WeightGradientSink> SinkFor(const at::Tensor& weight,
                                              bool wants_weight,
                                              bool wants_bias) const {
    std::shared_ptr<WeightGradientSink> sink = sink_.lock();
    const bool may_leave =
        sink != nullptr &&
        (!wants_weight || WeightGradientSink::MayDefer(weight)) &&
        (!wants_bias || WeightGradientSink::MayDefer(bias_));
    return may_leave ? sink : nullptr;
  }

  void Leave(const at::Tensor& dy, const at::Tensor& rows,
             const at::Tensor& weight, bool wants_weight, bool wants_bias,
             WeightGradientSink& sink) {
    DeferredGradients gradients;
    gradients.operands = {dy};
    gradients.settings = {layout_ == WeightLayout::kOutIn};
    if (wants_weight) {
      gradients.weights.push_back(weight);
      gradients.operands.push_back(rows);
    }
    if (wants_bias) gradients.weights.push_back(bias_);
    gradients.function = JoinedGradients;
    sink.Defer(std::move(gradients));
  }

  at::Tensor InputGradient(const at::Tensor& dy) {
    const at::Tensor weight =
        LowPrecisionCopy(weight_.unpack(getptr()), dy.scalar_type());
    const at::Tensor dx = MatrixProduct(
        dy, layout_ == WeightLayout::kOutIn ? weight : weight.t());
    return x_sizes_.size() == 2 ? dx : dx.view(x_sizes_);
  }

  const std::vector<int64_t> x_sizes_;
  SavedVariable x_;
  GatheredInput gathered_;  // in its place
  SavedVariable weight_;
  at::ScalarType bias_dtype_ = at::kFloat;
  WeightLayout layout_;
  const std::weak_ptr<WeightGradientSink> sink_;
  at::Tensor bias_;  // for the sink alone
};

class AddBiasBackward : public torch::autograd::Node, public SplitNode {
 public:
  explicit AddBiasBackward(const at::Tensor& bias)
      : dtype_(bias.scalar_type()), sink_(WeightGradientSink::Current()) {
    if (WeightGradientSink::Current() != nullptr) bias_ = bias;
  }

  std::string name() const override { return "AddBiasBackward"; }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const at::Tensor& dy = gradients[0];
    if (!dy.defined()) return variable_list(2);
    variable_list results = {dy, at::Tensor()};
    if (!task_should_compute_output(1)) return results;
    const auto sink = sink_.lock();
    if (sink != nullptr && WeightGradientSink::MayDefer(bias_)) {
      DeferredGradients gradients_of_bias;
      gradients_of_bias.weights = {bias_};
      gradients_of_bias.operands = {Rows(dy)};
      gradients_of_bias.settings = {0};
      gradients_of_bias.function = JoinedGradients;
      sink->Defer(std::move(gradients_of_bias));
    } else {
      results[1] = BiasGradient(Rows(dy), dtype_);
    }
    return results;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    bias_.reset();
  }

 private:
  const at::ScalarType dtype_;
  at::Tensor bias_;  // for the sink alone
  const std::weak_ptr<WeightGradientSink> sink_;
};

}  // namespace

at::Tensor AddBiasFunction(const at::Tensor& x, const at::Tensor& bias) {
  if (!bias.defined()) return x;
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::NoGradGuard no_grad;  // LowPrecisionCopy asks
    y = at::add(x, LowPrecisionCopy(bias, x.scalar_type()));
  }
  if (torch::autograd::compute_requires_grad(x, bias)) {
    const auto node = c10::make_intrusive<AddBiasBackward>(bias);
    node->set_next_edges(torch::autograd::collect_next_edges(x, bias));
    torch::autograd::set_history(y, node);
  }
  return y;
}

at::Tensor LinearFunction(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& bias, WeightLayout layout) {
  using torch::autograd::collect_next_edges;
  using torch::autograd::compute_requires_grad;
  const Operands operands = LinearOperands(x, weight, bias);
  c10::intrusive_ptr<LinearBackward> node;
  if (compute_requires_grad(x, weight, bias)) {
    node = c10::make_intrusive<LinearBackward>(operands, weight, bias, layout);
    node->set_next_edges(collect_next_edges(operands.x, weight, bias));
  }
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::NoGradGuard no_grad;  // MatrixProduct asks
    y = Forward(operands.x, operands.weight, operands.bias, layout);
  }
  if (node != nullptr) torch::autograd::set_history(y, node);
  return y;
}

}  // namespace tandem
