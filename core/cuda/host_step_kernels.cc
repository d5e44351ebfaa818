#include "core/cuda/host_step_kernels.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/base/find_operator.h"

namespace tandem {
namespace {

double SumOfSquares(const at::Tensor& grads) {
  const auto* const each = grads.const_data_ptr<float>();
  double sum = 0;
  for (int64_t i = 0; i < grads.numel(); ++i) {
    sum += static_cast<double>(each[i]) * each[i];
  }
  return sum;
}

at::Tensor FactorOnCpu(at::TensorList grads, double inverse_scale,
                       double max_norm, bool skips_nonfinite) {
  double sum = 0;
  for (const at::Tensor& each : grads) sum += SumOfSquares(each);
  const GradientFactor found =
      FactorOf(sum, {static_cast<float>(inverse_scale),
                     static_cast<float>(max_norm), skips_nonfinite});
  at::Tensor factor =
      at::empty({static_cast<int64_t>(sizeof(found))}, at::kByte);
  std::memcpy(factor.mutable_data_ptr(), &found, sizeof(found));
  return factor;
}

using State = std::optional<at::Tensor>;

template <typename AnyStep>
void StepAll(const at::Tensor& values, const at::Tensor& grads,
             const State& first, const State& second, const at::Tensor& factor,
             const State& held, AnyStep step) {
  const GradientFactor found = ReadFactor(factor);
  if (found.skip != 0) return;
  if (held.has_value()) step.Take(held->const_data_ptr<float>());
  auto* const value = values.mutable_data_ptr<float>();
  const auto* const grad = grads.const_data_ptr<float>();
  auto* const firsts = first ? first->mutable_data_ptr<float>() : nullptr;
  auto* const seconds = second ? second->mutable_data_ptr<float>() : nullptr;
  float none = 0;
  for (int64_t i = 0; i < values.numel(); ++i) {
    step(found.factor * grad[i], value[i], firsts == nullptr ? none : firsts[i],
         seconds == nullptr ? none : seconds[i]);
  }
}

// `numbers`: as SgdStep and AdamStep have them, in that order; `held`:
// StepTensors::numbers.
void SgdOnCpu(const at::Tensor& values, const at::Tensor& grads,
              const State& first, const at::Tensor& factor,
              at::ArrayRef<double> numbers, const State& held, bool nesterov,
              bool is_first) {
  SgdStep step;
  step.learning_rate = static_cast<float>(numbers[0]);
  step.momentum = static_cast<float>(numbers[1]);
  step.rest_of_dampening = static_cast<float>(numbers[2]);
  step.weight_decay = static_cast<float>(numbers[3]);
  step.nesterov = nesterov;
  step.is_first = is_first;
  StepAll(values, grads, first, std::nullopt, factor, held, step);
}

void AdamOnCpu(const at::Tensor& values, const at::Tensor& grads,
               const at::Tensor& first, const at::Tensor& second,
               const at::Tensor& factor, at::ArrayRef<double> numbers,
               const State& held, bool decoupled) {
  AdamStep step;
  step.learning_rate = static_cast<float>(numbers[0]);
  step.rest_of_beta1 = static_cast<float>(numbers[1]);
  step.beta2 = static_cast<float>(numbers[2]);
  step.rest_of_beta2 = static_cast<float>(numbers[3]);
  step.eps = static_cast<float>(numbers[4]);
  step.weight_decay = static_cast<float>(numbers[5]);
  step.decoupled = decoupled;
  step.bias_correction1 = static_cast<float>(numbers[6]);
  step.bias_correction2_root = static_cast<float>(numbers[7]);
  StepAll(values, grads, first, second, factor, held, step);
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def(
      "gradient_factor(Tensor[] grads, float inverse_scale, float max_norm, "
      "bool skips_nonfinite) -> Tensor");
  library.def(
      "sgd_step(Tensor(a!) values, Tensor grads, Tensor(b!)? first, Tensor "
      "factor, float[] numbers, Tensor? held, bool nesterov, bool is_first) -> "
      "()");
  library.def(
      "adam_step(Tensor(a!) values, Tensor grads, Tensor(b!) first, Tensor(c!) "
      "second, Tensor factor, float[] numbers, Tensor? held, bool decoupled) "
      "-> ()");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("gradient_factor", FactorOnCpu);
  library.impl("sgd_step", SgdOnCpu);
  library.impl("adam_step", AdamOnCpu);
}

State HeldBy(const StepTensors& tensors) {
  return tensors.numbers.defined() ? State(tensors.numbers) : std::nullopt;
}

class Kernels : public StepKernels {
 public:
  at::Tensor FindFactor(const std::vector<at::Tensor>& grads,
                        const FactorOptions& options) const override {
    static const auto op =
        FindOperator<decltype(FactorOnCpu)>("tandem::gradient_factor");
    return op.call(grads, options.inverse_scale, options.max_norm,
                   options.skips_nonfinite);
  }

  void Step(const StepTensors& tensors, const SgdStep& step,
            const at::Tensor& factor) const override {
    static const auto op = FindOperator<decltype(SgdOnCpu)>("tandem::sgd_step");
    const std::vector<double> numbers = {step.learning_rate, step.momentum,
                                         step.rest_of_dampening,
                                         step.weight_decay};
    op.call(tensors.values, tensors.grads,
            tensors.first.defined() ? State(tensors.first) : std::nullopt,
            factor, numbers, HeldBy(tensors), step.nesterov, step.is_first);
  }

  void Step(const StepTensors& tensors, const AdamStep& step,
            const at::Tensor& factor) const override {
    static const auto op =
        FindOperator<decltype(AdamOnCpu)>("tandem::adam_step");
    const std::vector<double> numbers = {step.learning_rate,
                                         step.rest_of_beta1,
                                         step.beta2,
                                         step.rest_of_beta2,
                                         step.eps,
                                         step.weight_decay,
                                         step.bias_correction1,
                                         step.bias_correction2_root};
    op.call(tensors.values, tensors.grads, tensors.first, tensors.second,
            factor, numbers, HeldBy(tensors), step.decoupled);
  }
};

}  // namespace

const StepKernels& HostStepKernels() {
  static const auto* const kernels = new Kernels;
  return *kernels;
}

}  // namespace tandem
