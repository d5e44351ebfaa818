#include "parallel/comm_hooks/low_rank_gradient.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>

#include "absl/strings/str_cat.h"
#include "core/random/random.h"
#include "parallel/comm_hooks/orthogonalize.h"

namespace tandem {
namespace {

// Columns that are as good as random, from the device: of waves whose lengths
// have no ratio, others in each iteration. The same on every rank.
at::Tensor WavesLike(const at::Tensor& q, int64_t iter) {
  const at::TensorOptions options = q.options().dtype(at::kDouble);
  const at::Tensor rows = at::arange(1, q.size(0) + 1, options).unsqueeze(1);
  const at::Tensor columns = at::arange(1, q.size(1) + 1, options);
  return (rows * (columns + 0.1 * static_cast<double>(iter % 97)).sqrt())
      .sin()
      .to(q.scalar_type());
}

// A column of zeros would stay one for ever: it is replaced, on the CPU by a
// random one. Elsewhere the host does not ask whether there is any.
void OrthogonalizeQ(const LowRankGradient& each, const PowerSgdOptions& options,
                    int64_t iter) {
  const double epsilon = options.orthogonalization_epsilon;
  const at::Tensor zero = Orthogonalize(each.q, epsilon);
  const bool is_host = each.q.is_cpu();
  if (is_host && !zero.any().item<bool>()) return;
  const at::Tensor known = each.q.clone();
  if (is_host) {
    RandomizeQ(each, options, iter);
  } else {
    each.q.copy_(WavesLike(each.q, iter));
  }
  each.q.copy_(at::where(zero, each.q, known));
  Orthogonalize(each.q, epsilon);
  if (!is_host) each.q.copy_(at::where(zero.any(), each.q, known));
}

// What is lost is the error, unless `finite`, a bool on the device, is false:
// then Q and the error start afresh.
void StartAfreshUnless(const at::Tensor& finite, const LowRankGradient& each,
                       int64_t iter) {
  each.q.copy_(at::where(finite, each.q, WavesLike(each.q, iter)));
  if (each.error.defined()) {
    each.error.sub_(each.gradient).masked_fill_(finite.logical_not(), 0);
  }
}

}  // namespace

void RandomizeQ(const LowRankGradient& each, const PowerSgdOptions& options,
                int64_t iter) {
  at::Generator generator = GeneratorFor(
      options.random_seed, absl::StrCat("power_sgd/", iter, "/", each.name));
  const at::Tensor values = at::randn(each.q.sizes(), generator, at::kFloat);
  each.q.copy_(each.q.is_cpu() ? values : values.pin_memory(),
               /*non_blocking=*/true);
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
  const at::Tensor finite = at::isfinite(each.q).all();
  if (!finite.is_cpu()) return StartAfreshUnless(finite, each, iter + 1);
  if (finite.item<bool>()) {
    if (each.error.defined()) each.error.sub_(gradient);
    return;
  }
  RandomizeQ(each, options, iter + 1);
  if (each.error.defined()) each.error.zero_();
}

}  // namespace tandem
