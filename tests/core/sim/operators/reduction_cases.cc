#include <ATen/ATen.h>

#include "tests/core/sim/operators/operator_case.h"

namespace tandem {
namespace {

using at::Tensor;

OperatorGroup ReductionGroup() {
  OperatorGroup group("reductions");
  const Tensor a = Normal({6, 5, 3});
  group.Twice("sum", {a}, [](In x) { return x[0].sum(); });
  group.Twice("sum of a dimension", {a}, [](In x) {
    return x[0].sum(at::IntArrayRef{0, 2});
  });
  group.Twice("sum of many", {Normal({300, 301})},
              [](In x) { return x[0].square().sum(); });
  group.Twice("mean", {a}, [](In x) { return x[0].mean({1}, true); });
  group.Twice("prod", {a}, [](In x) { return x[0].prod(1); });
  group.Twice("var", {a}, [](In x) { return x[0].var(1); });
  group.Twice("std", {a}, [](In x) { return x[0].std(at::IntArrayRef{0, 1}); });
  group.Twice("norm", {a}, [](In x) { return x[0].norm(2, {1}); });
  group.Twice("norm of order 3", {a}, [](In x) { return x[0].norm(3); });
  group.Twice("logsumexp", {a}, [](In x) { return x[0].logsumexp({1}); });
  group.Twice("trace", {Normal({4, 4})}, [](In x) { return x[0].trace(); });
  group.Gradient("max of all", {a}, [](In x) { return x[0].max(); });
  group.Gradient("max of a dimension", {a}, [](In x) { return x[0].max(1); });
  group.Gradient("amin, amax", {a}, [](In x) {
    return Tensors{x[0].amin({1}), x[0].amax({0, 2})};
  });
  group.Forward("aminmax", {a}, [](In x) { return at::aminmax(x[0]); });
  group.Gradient("median", {a}, [](In x) { return x[0].median(0); });
  group.Gradient("quantile", {Normal({31})},
                 [](In x) { return x[0].quantile(0.3); });
  group.Gradient("nansum, nanmean", {a}, [](In x) {
    return Tensors{x[0].sqrt().nansum(), x[0].log().nanmean(0)};
  });
  group.Forward("argmax, argmin", {a}, [](In x) {
    return Tensors{x[0].argmax(), x[0].argmin(1)};
  });
  group.Forward("any, all", {Truths({4, 5})}, [](In x) {
    return Tensors{x[0].any(), x[0].all(1), x[0].any(0)};
  });
  group.Forward("count_nonzero", {Integers(2, {4, 5})},
                [](In x) { return x[0].count_nonzero(at::IntArrayRef{1}); });
  group.Forward("of nothing", {Normal({0, 3})}, [](In x) {
    return Tensors{x[0].sum(), x[0].sum(0), x[0].mean(), x[0].prod(1)};
  });
  return group;
}

OperatorGroup CumulativeCases() {
  OperatorGroup group("cumulative");
  const Tensor a = Normal({6, 5});
  group.Twice("cumsum", {a}, [](In x) { return x[0].cumsum(0); });
  group.Twice("cumprod", {a}, [](In x) { return x[0].cumprod(1); });
  group.Twice("logcumsumexp", {a}, [](In x) { return x[0].logcumsumexp(0); });
  group.Twice("diff", {a}, [](In x) { return x[0].diff(1, 1); });
  group.Twice("trapezoid", {a}, [](In x) { return at::trapezoid(x[0]); });
  group.Gradient("cummax", {a}, [](In x) { return x[0].cummax(1); });
  group.Gradient("cummin", {a}, [](In x) { return x[0].cummin(0); });
  return group;
}

OperatorGroup SortingCases() {
  OperatorGroup group("sorting and sets");
  const Tensor a = Normal({6, 5});
  const Tensor integers = Integers(4, {4, 5});
  group.Twice("sort", {a}, [](In x) { return x[0].square().sort(1, true); });
  group.Gradient("topk", {a}, [](In x) { return x[0].topk(3, 0); });
  group.Gradient("kthvalue", {a}, [](In x) { return x[0].kthvalue(2); });
  group.Gradient("mode", {a}, [](In x) { return x[0].mode(1); });
  group.Forward("argsort, msort", {a}, [](In x) {
    return Tensors{x[0].argsort(int64_t{0}), x[0].msort()};
  });
  group.Forward("stable sort", {integers},
                [](In x) { return x[0].sort(/*stable=*/true, 1, false); });
  group.Forward("nonzero", {integers}, [](In x) { return x[0].nonzero(); });
  group.Forward("argwhere", {integers}, [](In x) { return x[0].argwhere(); });
  group.Forward("unique", {integers},
                [](In x) { return at::_unique2(x[0], true, true, true); });
  group.Forward("unique_consecutive", {integers},
                [](In x) { return at::unique_consecutive(x[0], true, true); });
  group.Forward("unique_dim", {integers},
                [](In x) { return at::unique_dim(x[0], 1, true, true, true); });
  group.Forward("searchsorted", {Normal({9}), a}, [](In x) {
    return at::searchsorted(std::get<0>(x[0].sort()), x[1]);
  });
  group.Forward("bincount, histc", {integers.flatten(), a}, [](In x) {
    return Tensors{x[0].bincount({}, 6), x[1].histc(5, -2, 2)};
  });
  group.Gradient("masked_select", {a, Truths({6, 5})},
                 [](In x) { return x[0].masked_select(x[1]); });
  return group;
}

}  // namespace

std::vector<OperatorGroup> ReductionCases() {
  return {ReductionGroup(), CumulativeCases(), SortingCases()};
}

}  // namespace tandem
