#include "parallel/comm_hooks/low_rank_gradient.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "absl/strings/str_cat.h"
#include "core/random/random.h"
#include "parallel/comm_hooks/orthogonalize.h"

namespace tandem {
namespace {

void OrthogonalizeQ(const LowRankGradient& each, const PowerSgdOptions& options,
                    int64_t iter) {
  const double epsilon = options.orthogonalization_epsilon;
  if (Orthogonalize(each.q, epsilon) == 0) return;
  // A column of zeros would stay one for ever.
  const at::Tensor known = each.q.clone();
  RandomizeQ(each, options, iter);
  for (int64_t k = 0; k < known.size(1); ++k) {
    const at::Tensor column = known.select(1, k);
    if (column.count_nonzero().item<int64_t>() != 0) {
      each.q.select(1, k).copy_(column);
    }
  }
  Orthogonalize(each.q, epsilon);
}

}  // namespace

void RandomizeQ(const LowRankGradient& each, const PowerSgdOptions& options,
                int64_t iter) {
  at::Generator generator = GeneratorFor(
      options.random_seed, absl::StrCat("power_sgd/", iter, "/", each.name));
  each.q.copy_(at::randn(each.q.sizes(), generator, at::kFloat));
}

void ComputeP(const LowRankGradient& each, const PowerSgdOptions& options,
              int64_t iter) {
  if (!options.warm_start) RandomizeQ(each, options, iter);
  OrthogonalizeQ(each, options, iter);
  if (each.error.defined()) each.error.add_(each.gradient);
  at::Tensor p = each.p;
  at::mm_out(p, each.matrix(), each.q);
}

void ComputeQ(const LowRankGradient& each, const PowerSgdOptions& options) {
  Orthogonalize(each.p, options.orthogonalization_epsilon);
  at::Tensor q = each.q;
  at::mm_out(q, each.matrix().t(), each.p);
}

void Decompress(const LowRankGradient& each, const PowerSgdOptions& options,
                int64_t iter) {
  at::Tensor gradient = each.gradient;
  at::mm_out(gradient, each.p, each.q.t());
  if (at::isfinite(each.q).all().item<bool>()) {
    if (each.error.defined()) each.error.sub_(gradient);
    return;
  }
  RandomizeQ(each, options, iter + 1);
  if (each.error.defined()) each.error.zero_();
}

}  // namespace tandem
