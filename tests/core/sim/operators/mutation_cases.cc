#include <ATen/ATen.h>

#include "tests/core/sim/operators/operator_case.h"

namespace tandem {
namespace {

using at::Tensor;

OperatorGroup InPlaceCases() {
  OperatorGroup group("in-place");
  const Tensor a = Normal({4, 6});
  const Tensor b = Normal({6});
  group.Forward("on the inputs", {a, b}, [](In x) {
    x[0].mul_(2).add_(x[1]);
    x[1].exp_().clamp_(0.5, 2);
    return x[0];
  });
  group.Forward("on views of the inputs", {a, b}, [](In x) {
    x[0].select(0, 1).copy_(x[1]);
    x[0].t().slice(0, 2, 4).zero_();
    x[0].diagonal().fill_(7);
    x[0].view({-1}).slice(0, 20).add_(1);
    return x[0];
  });
  group.Forward("on overlapping views", {a}, [](In x) {
    x[0].slice(1, 1).add_(x[0].slice(1, 0, 5).clone());
    return x[0];
  });
  group.Twice("arithmetic", {a, b}, [](In x) {
    return x[0].clone().mul_(x[1]).add_(x[1], 2).div_(3).square();
  });
  group.Gradient("activations", {a}, [](In x) {
    return Tensors{x[0].clone().relu_(), x[0].clone().sigmoid_(),
                   x[0].clone().mul_(2).tanh_()};
  });
  group.Twice("copy_ and zero_ in views", {a, b}, [](In x) {
    const Tensor y = x[0].clone();
    y.select(0, 1).copy_(x[1]);
    y.slice(1, 0, 2).zero_();
    return y.square();
  });
  group.Twice("index_put_", {a, b, Integers(4, {2})}, [](In x) {
    return x[0].clone().index_put_({x[2]}, x[1]).square();
  });
  group.Twice("masked_fill_", {a, Truths({4, 6})},
              [](In x) { return x[0].clone().masked_fill_(x[1], 2).square(); });
  group.Gradient("scatter_, index_add_", {a, Integers(4, {2, 6})}, [](In x) {
    const Tensor y = x[0].clone();
    y.scatter_(0, x[1], 2);
    return y.index_add_(0, x[1].select(1, 0), x[0].slice(0, 0, 2));
  });
  group.Forward("shapes", {a}, [](In x) {
    x[0].t_();
    x[0].unsqueeze_(0);
    x[0].transpose_(0, 2);
    x[0].squeeze_(2);
    return x[0];
  });
  group.Forward("resize_, set_", {a, b}, [](In x) {
    x[0].resize_({2, 3});
    x[1].set_(x[0].clone());
    return Tensors{x[0] + 1, x[1] + 1};
  });
  group.Forward("swap of dtypes by set_data", {a, b}, [](In x) {
    x[0].set_data(x[1].clone());
    return x[0] * 2;
  });
  return group;
}

OperatorGroup OutCases() {
  OperatorGroup group("out=");
  const Tensor a = Normal({4, 4});
  const Tensor b = Normal({4, 4});
  group.Forward("of the right shape", {a, b, Normal({4, 4})}, [](In x) {
    Tensor out = x[2];
    at::add_out(out, x[0], x[1]);
    return out;
  });
  group.Forward("of another shape", {a, b}, [](In x) {
    Tensor out = at::empty({0}, x[0].options());
    at::mm_out(out, x[0], x[1]);
    return out;
  });
  group.Forward("an argument", {a, b}, [](In x) {
    Tensor out = x[0];
    at::mul_out(out, x[0], x[1]);
    return out;
  });
  group.Forward("an argument, then another", {a, b, Normal({4, 4})}, [](In x) {
    Tensor first = x[0].clone();
    Tensor second = x[2];
    at::sub_out(first, first, x[1]);
    at::sub_out(second, x[0], x[1]);
    return Tensors{first, second, x[0]};
  });
  group.Forward("a view", {a, b, Normal({8, 4})}, [](In x) {
    Tensor out = x[2].slice(0, 0, 8, 2);
    at::div_out(out, x[0], x[1]);
    return x[2];
  });
  group.Forward("of another dtype", {a, Normal({4})}, [](In x) {
    Tensor out = at::empty({4}, x[0].options().dtype(at::kDouble));
    at::sum_out(out, x[0], at::IntArrayRef{1}, false, at::kDouble);
    return out;
  });
  group.Forward("two results", {a}, [](In x) {
    Tensor values = at::empty({0}, x[0].options());
    Tensor indices = at::empty({0}, x[0].options().dtype(at::kLong));
    at::sort_out(values, indices, x[0], 1);
    return Tensors{values, indices};
  });
  group.Forward("cat, arange, randn", {a, b}, [](In x) {
    Tensor joined = at::empty({0}, x[0].options());
    Tensor numbers = at::empty({5}, x[0].options());
    Tensor random = at::empty({5}, x[0].options());
    at::cat_out(joined, {x[0], x[1]}, 1);
    at::arange_out(numbers, 5);
    at::randn_out(random, {5});
    return Tensors{joined, numbers, random};
  });
  return group;
}

OperatorGroup RandomCases() {
  OperatorGroup group("random numbers");
  const Tensor a = Fraction({5, 7});
  group.Forward("rand, randn, randint, randperm", {a}, [](In x) {
    const at::TensorOptions options = x[0].options();
    return Tensors{at::rand({3, 7}, options), at::randn({33}, options),
                   at::randint(9, {3, 4}, options),
                   at::randperm(17, options.dtype(at::kLong))};
  });
  group.Forward("rand_like, randn_like, randint_like", {a}, [](In x) {
    return Tensors{at::rand_like(x[0]), at::randn_like(x[0]),
                   at::randint_like(x[0], 5)};
  });
  group.Forward("uniform_, normal_, exponential_, random_", {a}, [](In x) {
    return Tensors{x[0].clone().uniform_(-1, 2), x[0].clone().normal_(1, 3),
                   x[0].clone().exponential_(2), x[0].clone().random_(0, 9),
                   x[0].clone().cauchy_(),       x[0].clone().log_normal_(),
                   x[0].clone().geometric_(0.3)};
  });
  group.Forward("bernoulli, poisson, multinomial", {a}, [](In x) {
    return Tensors{x[0].bernoulli(), at::poisson(x[0] * 4), x[0].multinomial(3),
                   x[0].multinomial(9, true)};
  });
  group.Gradient("dropout", {a},
                 [](In x) { return at::dropout(x[0], 0.4, true); });
  group.Gradient("feature_dropout, alpha_dropout", {Normal({3, 4, 5, 5})},
                 [](In x) {
                   return Tensors{at::feature_dropout(x[0], 0.4, true),
                                  at::alpha_dropout(x[0], 0.4, true)};
                 });
  group.Gradient("native_dropout", {a},
                 [](In x) { return at::native_dropout(x[0], 0.4, true); });
  group.Gradient("rrelu", {Normal({5, 7})}, [](In x) {
    return at::rrelu(x[0], 0.1, 0.3, /*training=*/true);
  });
  group.Gradient("normal of tensors", {a, Positive({5, 7})},
                 [](In x) { return at::normal(x[0], x[1]) * x[0]; });
  return group;
}

OperatorGroup ForeachCases() {
  OperatorGroup group("foreach");
  const Tensors some = {Normal({3, 4}), Normal({5}), Normal({0}),
                        Normal({2, 1})};
  group.Gradient("add, mul", some, [](In x) {
    return at::_foreach_mul(at::_foreach_add(x, 2), x);
  });
  group.Gradient("norm", some, [](In x) { return at::_foreach_norm(x, 2); });
  group.Forward("add_, mul_, zero_", some, [](In x) {
    at::_foreach_add_(x, x, 0.5);
    at::_foreach_mul_(x, 3);
    at::_foreach_zero_(at::TensorList(x).slice(0, 1));
    return x[1];
  });
  group.Forward("addcmul_, addcdiv_, lerp_", some, [](In x) {
    const Tensors ones = at::_foreach_abs(at::_foreach_add(x, 1));
    at::_foreach_addcmul_(x, ones, ones, 0.5);
    at::_foreach_addcdiv_(x, ones, ones, 0.5);
    at::_foreach_lerp_(x, ones, 0.25);
    return x[0];
  });
  group.Forward("copy_", some, [](In x) {
    const Tensors doubled = at::_foreach_mul(x, 2);
    at::_foreach_copy_(x, doubled);
    return doubled;
  });
  group.Gradient("sqrt, exp, maximum", some, [](In x) {
    Tensors y = at::_foreach_exp(x);
    const Tensors roots = at::_foreach_sqrt(y);
    const Tensors most = at::_foreach_maximum(y, roots);
    y.insert(y.end(), most.begin(), most.end());
    return y;
  });
  return group;
}

}  // namespace

std::vector<OperatorGroup> MutationCases() {
  return {InPlaceCases(), OutCases(), RandomCases(), ForeachCases()};
}

}  // namespace tandem
