#include <ATen/ATen.h>

#include "tests/core/sim/operators/operator_case.h"

namespace tandem {
namespace {

using at::Tensor;

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

std::vector<OperatorGroup> AlgebraCases() {
  return {MatmulCases(), LinalgCases(), FourierCases()};
}

}  // namespace tandem
