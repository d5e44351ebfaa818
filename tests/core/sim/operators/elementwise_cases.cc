#include <ATen/ATen.h>

#include "tests/core/sim/operators/operator_case.h"

namespace tandem {
namespace {

using at::Tensor;

OperatorGroup UnaryCases() {
  OperatorGroup group("elementwise, of one tensor");
  group.Each(Normal({5, 7}), Gradients::kTwice,
             {{"abs", &Tensor::abs},
              {"neg", &Tensor::neg},
              {"exp", &Tensor::exp},
              {"expm1", &Tensor::expm1},
              {"sin", &Tensor::sin},
              {"cos", &Tensor::cos},
              {"tan", &Tensor::tan},
              {"atan", &Tensor::atan},
              {"sinh", &Tensor::sinh},
              {"tanh", &Tensor::tanh},
              {"asinh", &Tensor::asinh},
              {"erf", &Tensor::erf},
              {"sigmoid", &Tensor::sigmoid},
              {"square", &Tensor::square},
              {"relu", &Tensor::relu}});
  group.Each(Positive({5, 7}), Gradients::kTwice,
             {{"sqrt", &Tensor::sqrt},
              {"rsqrt", &Tensor::rsqrt},
              {"log", &Tensor::log},
              {"log2", &Tensor::log2},
              {"log1p", &Tensor::log1p},
              {"reciprocal", &Tensor::reciprocal},
              {"lgamma", &Tensor::lgamma}});
  group.Each(Normal({5, 7}), Gradients::kNone,
             {{"sign", &Tensor::sign},
              {"floor", &Tensor::floor},
              {"ceil", &Tensor::ceil},
              {"trunc", &Tensor::trunc},
              {"isnan of log", &Tensor::isnan},
              {"isfinite", &Tensor::isfinite},
              {"logical_not", &Tensor::logical_not}});
  group.Gradient("clamp", {Normal({5, 7})},
                 [](In x) { return x[0].clamp(-0.5, 0.5); });
  group.Gradient("nan_to_num of log", {Normal({5, 7})},
                 [](In x) { return x[0].log().nan_to_num(3); });
  group.Forward("round to two decimals", {Normal({5, 7})},
                [](In x) { return x[0].round(2); });
  return group;
}

OperatorGroup BinaryCases() {
  OperatorGroup group("elementwise, of several tensors");
  const Tensor a = Positive({4, 1, 6});
  const Tensor b = Positive({3, 1});
  group.Twice("add", {a, b}, [](In x) { return x[0].add(x[1], 2); });
  group.Twice("sub", {a, b}, [](In x) { return x[0] - x[1]; });
  group.Twice("mul", {a, b}, [](In x) { return x[0] * x[1]; });
  group.Twice("div", {a, b}, [](In x) { return x[0] / x[1]; });
  group.Twice("pow", {a, b}, [](In x) { return x[0].pow(x[1]); });
  group.Twice("pow of a number", {a}, [](In x) { return at::pow(2.5, x[0]); });
  group.Twice("atan2", {a, b}, [](In x) { return x[0].atan2(x[1]); });
  group.Twice("hypot", {a, b}, [](In x) { return x[0].hypot(x[1]); });
  group.Twice("lerp", {a, b}, [](In x) { return x[0].lerp(x[1], 0.3); });
  group.Twice("addcmul", {a, b, a},
              [](In x) { return x[0].addcmul(x[1], x[2], 0.5); });
  group.Twice("addcdiv", {a, b, a},
              [](In x) { return x[0].addcdiv(x[1], x[2], 0.5); });
  group.Gradient("maximum", {a, b}, [](In x) { return x[0].maximum(x[1]); });
  group.Gradient("minimum", {a, b}, [](In x) { return x[0].minimum(x[1]); });
  group.Gradient("fmod", {a, b}, [](In x) { return x[0].fmod(x[1]); });
  group.Gradient("remainder", {a, b},
                 [](In x) { return x[0].remainder(x[1]); });
  group.Gradient("copysign", {a, b}, [](In x) { return x[0].copysign(x[1]); });
  group.Gradient("where", {Truths({3, 6}), a, b},
                 [](In x) { return at::where(x[0], x[1], x[2]); });
  group.Forward("floor_divide", {a, b},
                [](In x) { return x[0].floor_divide(x[1]); });
  return group;
}

OperatorGroup ComparisonCases() {
  OperatorGroup group("comparison and bits");
  const Tensor a = Integers(3, {4, 5});
  const Tensor b = Integers(3, {5});
  group.Forward("eq, ne", {a, b}, [](In x) {
    return Tensors{x[0].eq(x[1]), x[0].ne(x[1]), x[0].eq(1)};
  });
  group.Forward("lt, le, gt, ge", {a, b}, [](In x) {
    return Tensors{x[0]<x[1], x[0] <= x[1], x[0]> x[1], x[0] >= x[1]};
  });
  group.Forward("and, or, xor", {a, b}, [](In x) {
    return Tensors{x[0] & x[1], x[0] | x[1], x[0] ^ x[1], ~x[0]};
  });
  group.Forward("logical_and, logical_or, logical_xor", {a, b}, [](In x) {
    return Tensors{x[0].logical_and(x[1]), x[0].logical_or(x[1]),
                   x[0].logical_xor(x[1])};
  });
  group.Forward("shifts", {a, b}, [](In x) {
    return Tensors{x[0].bitwise_left_shift(x[1]),
                   x[0].bitwise_right_shift(x[1])};
  });
  group.Forward("isclose", {Normal({4}), Normal({4})},
                [](In x) { return x[0].isclose(x[1], 0.5, 0.5); });
  group.Forward("isin, bucketize", {a, b}, [](In x) {
    return Tensors{at::isin(x[0], x[1]),
                   at::bucketize(x[0], std::get<0>(x[1].sort()))};
  });
  group.Forward("equal, allclose", {a, b}, [](In x) {
    return x[0] + static_cast<int64_t>(x[0].equal(x[0]) && !x[0].equal(x[1]) &&
                                       x[0].allclose(x[0]));
  });
  return group;
}

OperatorGroup DtypeCases() {
  OperatorGroup group("dtypes");
  const Tensor a = Normal({5, 3});
  const Tensor integers = Integers(9, {5, 3});
  for (const at::ScalarType dtype :
       {at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kByte, at::kBool,
        at::kComplexFloat}) {
    group.Forward(std::string("float to ") + at::toString(dtype), {a.abs()},
                  [dtype](In x) { return x[0].to(dtype); });
  }
  for (const at::ScalarType dtype :
       {at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    group.Gradient(std::string("arithmetic in ") + at::toString(dtype),
                   {a.to(dtype), a.to(dtype)}, [dtype](In x) {
                     return (x[0] * x[1] + 1).to(dtype).sum(0);
                   });
  }
  group.Forward("promotion", {a, integers, a.to(at::kHalf)}, [](In x) {
    return Tensors{x[0] + x[1], x[1] + x[2], x[0] * x[2], x[1] / 2, x[1] * 2.5};
  });
  group.Forward("promotion by numbers", {integers > 4, integers}, [](In x) {
    return Tensors{x[0].add(true),  x[0].add(1),  x[0].add(1.0),
                   x[1].add(false), x[1].add(0),  x[1].add(0.0),
                   x[1].pow(0),     x[1].pow(0.0)};
  });
  group.Gradient("through half", {a},
                 [](In x) { return (x[0].to(at::kHalf) * 3).to(at::kFloat); });
  group.Forward("view as integers", {a},
                [](In x) { return x[0].view(at::kInt); });
  return group;
}

OperatorGroup ComplexCases() {
  OperatorGroup group("complex numbers");
  const Tensor z = Complex({3, 4});
  group.Twice("mul", {z, Complex({4})}, [](In x) { return x[0] * x[1]; });
  group.Twice("exp", {z}, [](In x) { return x[0].exp(); });
  group.Twice("conj", {z}, [](In x) { return x[0].conj() * x[0]; });
  group.Forward("conj, lazily", {z}, [](In x) { return x[0].conj(); });
  group.Forward("neg, lazily", {z}, [](In x) { return at::imag(x[0].conj()); });
  group.Twice("real, imag", {z},
              [](In x) { return at::real(x[0]) * at::imag(x[0]); });
  group.Gradient("abs, angle", {z}, [](In x) {
    return Tensors{x[0].abs(), x[0].angle()};
  });
  group.Twice("view_as_real", {z},
              [](In x) { return at::view_as_real(x[0]).square(); });
  group.Twice("complex, polar", {Positive({4}), Normal({4})}, [](In x) {
    return Tensors{at::complex(x[0], x[1]), at::polar(x[0], x[1])};
  });
  group.Twice("matmul", {z, Complex({4, 2})},
              [](In x) { return x[0].matmul(x[1]); });
  return group;
}

}  // namespace

std::vector<OperatorGroup> ElementwiseCases() {
  return {UnaryCases(), BinaryCases(), ComparisonCases(), DtypeCases(),
          ComplexCases()};
}

}  // namespace tandem
