// The cases of operator_sweep_test: operators as functions of tensors, in
// groups.

#ifndef TANDEM_TESTS_CORE_SIM_OPERATORS_OPERATOR_CASE_H_
#define TANDEM_TESTS_CORE_SIM_OPERATORS_OPERATOR_CASE_H_

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tandem {

using Tensors = std::vector<at::Tensor>;
using In = const Tensors&;

// What is run beside the function: the gradients of its inputs by random
// gradients of its results, and the gradients of those.
enum class Gradients { kNone, kOnce, kTwice };

struct OperatorCase {
  std::string name;
  Tensors inputs;  // of the CPU
  // Must do the same on any device: that of its inputs.
  std::function<Tensors(In)> run;
  Gradients gradients = Gradients::kNone;
};

// What a case's function may return, as one list.
inline Tensors AsList(Tensors tensors) { return tensors; }
inline Tensors AsList(at::Tensor tensor) { return {std::move(tensor)}; }
template <typename... Each>
Tensors AsList(std::tuple<Each...> tensors) {
  return std::apply(
      [](const auto&... each) { return Tensors{at::Tensor(each)...}; },
      tensors);
}

class OperatorGroup {
 public:
  explicit OperatorGroup(std::string name) : name_(std::move(name)) {}

  template <typename F>
  void Forward(std::string name, Tensors inputs, F run) {
    Add(std::move(name), std::move(inputs), Gradients::kNone, run);
  }
  template <typename F>
  void Gradient(std::string name, Tensors inputs, F run) {
    Add(std::move(name), std::move(inputs), Gradients::kOnce, run);
  }
  template <typename F>
  void Twice(std::string name, Tensors inputs, F run) {
    Add(std::move(name), std::move(inputs), Gradients::kTwice, run);
  }

  // Methods without arguments.
  using Method = at::Tensor (at::Tensor::*)() const;
  using Methods = std::initializer_list<std::pair<const char*, Method>>;
  void Each(const at::Tensor& input, Gradients gradients, Methods methods) {
    for (const auto& [name, method] : methods) {
      const Method call = method;
      Add(name, {input}, gradients, [call](In x) { return (x[0].*call)(); });
    }
  }

  const std::string& name() const { return name_; }
  const std::vector<OperatorCase>& cases() const { return cases_; }

 private:
  template <typename F>
  void Add(std::string name, Tensors inputs, Gradients gradients, F run) {
    cases_.push_back({std::move(name), std::move(inputs),
                      [run](In inputs) { return AsList(run(inputs)); },
                      gradients});
  }

  std::string name_;
  std::vector<OperatorCase> cases_;
};

// Inputs; the same ones in each run of the program.
inline at::Generator& Numbers() {
  static auto* generator =
      new at::Generator(at::globalContext().defaultGenerator(at::kCPU).clone());
  return *generator;
}
inline at::Tensor Uniform(at::IntArrayRef sizes, double low, double high) {
  return at::empty(sizes).uniform_(low, high, Numbers());
}
inline at::Tensor Normal(at::IntArrayRef sizes) {
  return at::randn(sizes, Numbers());
}
inline at::Tensor Positive(at::IntArrayRef sizes) {
  return Uniform(sizes, 0.5, 1.5);
}
inline at::Tensor Fraction(at::IntArrayRef sizes) {
  return Uniform(sizes, 0.05, 0.95);
}
inline at::Tensor Integers(int64_t below, at::IntArrayRef sizes) {
  return at::randint(below, sizes, Numbers(), at::kLong);
}
inline at::Tensor Truths(at::IntArrayRef sizes) {
  return Integers(2, sizes).to(at::kBool);
}
inline at::Tensor Complex(at::IntArrayRef sizes) {
  return at::complex(Normal(sizes), Normal(sizes));
}

std::vector<OperatorGroup> ElementwiseCases();
std::vector<OperatorGroup> ReductionCases();
std::vector<OperatorGroup> AlgebraCases();
std::vector<OperatorGroup> ShapeCases();
std::vector<OperatorGroup> LayerCases();
std::vector<OperatorGroup> ModelCases();
std::vector<OperatorGroup> MutationCases();
std::vector<OperatorGroup> TrainingCases();

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_SIM_OPERATORS_OPERATOR_CASE_H_
