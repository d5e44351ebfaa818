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

Tensor PositiveDefinite(int64_t n) {
  const Tensor a = Normal({n, n});
  return a.mm(a.t()) + 3 * at::eye(n);
}

OperatorGroup MatmulCases() {
  OperatorGroup group("matmul");
  const Tensor a = Normal({5, 7});
  const Tensor b = Normal({7, 3});
  const Tensor batch = Normal({2, 5, 7});
  group.Twice("mm", {a, b}, [](In x) { return x[0].mm(x[1]); });
  group.Twice("mm of transposes", {a, b},
              [](In x) { return x[1].t().mm(x[0].t()); });
  group.Twice("mm of many", {Normal({128, 129}), Normal({129, 127})},
              [](In x) { return x[0].mm(x[1]); });
  group.Twice("mv", {a, Normal({7})}, [](In x) { return x[0].mv(x[1]); });
  group.Twice("dot", {Normal({7}), Normal({7})},
              [](In x) { return x[0].dot(x[1]); });
  group.Twice("outer", {Normal({7}), Normal({3})},
              [](In x) { return x[0].outer(x[1]); });
  group.Twice("bmm", {batch, Normal({2, 7, 4})},
              [](In x) { return x[0].bmm(x[1]); });
  group.Twice("matmul, broadcast", {batch, b},
              [](In x) { return x[0].matmul(x[1]); });
  group.Twice("addmm", {Normal({3}), a, b},
              [](In x) { return at::addmm(x[0], x[1], x[2], 0.5, 2); });
  group.Twice("addmv", {Normal({5}), a, Normal({7})},
              [](In x) { return at::addmv(x[0], x[1], x[2]); });
  group.Twice("baddbmm", {Normal({2, 5, 4}), batch, Normal({2, 7, 4})},
              [](In x) { return at::baddbmm(x[0], x[1], x[2]); });
  group.Twice("linear", {batch, Normal({4, 7}), Normal({4})},
              [](In x) { return at::linear(x[0], x[1], x[2]); });
  group.Twice("bilinear",
              {Normal({3, 4}), Normal({3, 5}), Normal({2, 4, 5}), Normal({2})},
              [](In x) { return at::bilinear(x[0], x[1], x[2], x[3]); });
  group.Twice("einsum", {batch, Normal({2, 4, 7})}, [](In x) {
    return at::einsum("bij,bkj->bik", {x[0], x[1]});
  });
  group.Twice("tensordot", {batch, Normal({7, 5})}, [](In x) {
    return at::tensordot(x[0], x[1], {2, 1}, {0, 1});
  });
  group.Twice("kron", {Normal({2, 3}), Normal({3, 2})},
              [](In x) { return at::kron(x[0], x[1]); });
  group.Gradient("cdist", {Normal({4, 3}), Normal({5, 3})},
                 [](In x) { return at::cdist(x[0], x[1], 2, 2); });
  group.Gradient("mm in bfloat16", {a.to(at::kBFloat16), b.to(at::kBFloat16)},
                 [](In x) { return x[0].mm(x[1]); });
  group.Forward("mm of integers", {Integers(5, {3, 4}), Integers(5, {4, 2})},
                [](In x) { return x[0].mm(x[1]); });
  return group;
}

OperatorGroup LinalgCases() {
  OperatorGroup group("linalg");
  const Tensor square = PositiveDefinite(4);
  const Tensor tall = Normal({5, 3});
  group.Twice("inv", {square}, [](In x) { return at::linalg_inv(x[0]); });
  group.Twice("det", {square}, [](In x) { return at::linalg_det(x[0]); });
  group.Twice("slogdet", {square},
              [](In x) { return std::get<1>(at::linalg_slogdet(x[0])); });
  group.Twice("solve", {square, Normal({4, 2})},
              [](In x) { return at::linalg_solve(x[0], x[1]); });
  group.Twice("solve_triangular", {square, Normal({4, 2})}, [](In x) {
    return at::linalg_solve_triangular(x[0].triu(), x[1], /*upper=*/true);
  });
  group.Twice("cholesky", {square},
              [](In x) { return at::linalg_cholesky(x[0]); });
  group.Twice("cholesky_solve", {Normal({4, 2}), square}, [](In x) {
    return at::cholesky_solve(x[0], at::linalg_cholesky(x[1]));
  });
  group.Twice("qr", {tall}, [](In x) { return at::linalg_qr(x[0]); });
  group.Gradient("svd", {tall},
                 [](In x) { return at::linalg_svd(x[0], false); });
  group.Twice("svdvals", {tall}, [](In x) { return at::linalg_svdvals(x[0]); });
  group.Gradient("eigh", {square}, [](In x) { return at::linalg_eigh(x[0]); });
  group.Gradient("eigvals", {Normal({4, 4})},
                 [](In x) { return at::linalg_eigvals(x[0]); });
  group.Gradient("lu", {square}, [](In x) { return at::linalg_lu(x[0]); });
  group.Gradient("lstsq", {tall, Normal({5, 2})}, [](In x) {
    return std::get<0>(at::linalg_lstsq(x[0], x[1], {}, "gels"));
  });
  // gelsy's: the default driver of the CPU, not of CUDA. Its solution depends
  // on what was in memory, on the CPU too.
  group.Forward("rank found by lstsq", {tall, Normal({5, 2})},
                [](In x) { return std::get<2>(at::linalg_lstsq(x[0], x[1])); });
  group.Gradient("pinv", {tall}, [](In x) { return at::linalg_pinv(x[0]); });
  group.Gradient("matrix_exp", {Normal({4, 4})},
                 [](In x) { return at::linalg_matrix_exp(x[0]); });
  group.Twice("matrix_power", {square},
              [](In x) { return at::linalg_matrix_power(x[0], 3); });
  group.Twice("vector_norm", {tall},
              [](In x) { return at::linalg_vector_norm(x[0], 2, {1}); });
  group.Gradient("matrix_norm, nuclear", {tall},
                 [](In x) { return at::linalg_matrix_norm(x[0], "nuc"); });
  group.Twice("cross", {tall, Normal({5, 3})},
              [](In x) { return at::linalg_cross(x[0], x[1]); });
  group.Forward("matrix_rank", {tall},
                [](In x) { return at::linalg_matrix_rank(x[0]); });
  return group;
}

OperatorGroup FourierCases() {
  OperatorGroup group("fft");
  const Tensor a = Normal({4, 6});
  group.Twice("fft", {Complex({4, 6})}, [](In x) { return at::fft_fft(x[0]); });
  group.Twice("ifft", {Complex({4, 6})},
              [](In x) { return at::fft_ifft(x[0], {}, 0); });
  group.Twice("rfft", {a}, [](In x) { return at::fft_rfft(x[0]); });
  group.Twice("irfft", {Complex({4, 4})},
              [](In x) { return at::fft_irfft(x[0], 6); });
  group.Twice("fft2", {a}, [](In x) { return at::fft_fft2(x[0]); });
  group.Gradient("stft", {Normal({64})}, [](In x) {
    return at::stft(x[0], 16, 8, 16,
                    at::hann_window(16, x[0].options().requires_grad(false)),
                    /*center=*/true, "reflect", false, true, true);
  });
  group.Forward("fftshift, fftfreq", {a}, [](In x) {
    return Tensors{at::fft_fftshift(x[0]),
                   at::fft_fftfreq(6, 0.5, x[0].options())};
  });
  return group;
}

}  // namespace

std::vector<OperatorGroup> ElementwiseCases() {
  return {UnaryCases(), BinaryCases(), ComparisonCases(), DtypeCases(),
          ComplexCases()};
}

std::vector<OperatorGroup> AlgebraCases() {
  return {MatmulCases(), LinalgCases(), FourierCases()};
}

}  // namespace tandem
