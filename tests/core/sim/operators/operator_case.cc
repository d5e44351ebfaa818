#include "tests/core/sim/operators/operator_case.h"

#include <ATen/Functions.h>

namespace tandem {
namespace {

at::Generator& Numbers() {
  static auto* generator =
      new at::Generator(at::globalContext().defaultGenerator(at::kCPU).clone());
  return *generator;
}

at::Tensor Uniform(at::IntArrayRef sizes, double low, double high) {
  return at::empty(sizes).uniform_(low, high, Numbers());
}

}  // namespace

at::Tensor Normal(at::IntArrayRef sizes) { return at::randn(sizes, Numbers()); }
at::Tensor Positive(at::IntArrayRef sizes) { return Uniform(sizes, 0.5, 1.5); }
at::Tensor Fraction(at::IntArrayRef sizes) {
  return Uniform(sizes, 0.05, 0.95);
}
at::Tensor Integers(int64_t below, at::IntArrayRef sizes) {
  return at::randint(below, sizes, Numbers(), at::kLong);
}
at::Tensor Truths(at::IntArrayRef sizes) {
  return Integers(2, sizes).to(at::kBool);
}
at::Tensor Complex(at::IntArrayRef sizes) {
  return at::complex(Normal(sizes), Normal(sizes));
}

}  // namespace tandem
