#include "models/functions/cross_entropy/chunked_logits.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "core/model/gradient_place.h"
#include "core/precision/low_precision_copy.h"
#include "models/functions/fused_operands.h"
#include "models/functions/matrix_product.h"

namespace tandem {
namespace {

// Float or wider, unless the fused kernels take them as they are.
at::Tensor ComputeLogits(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor logits = MatrixProduct(x, weight.t());
  const bool stays =
      IsForFusedKernels(logits) || logits.scalar_type() == at::kDouble;
  return stays ? logits : logits.to(at::kFloat);
}

// Adds a^T b.
void AddProduct(const at::Tensor& a, const at::Tensor& b, at::Tensor& sum) {
  if (a.scalar_type() == sum.scalar_type()) {
    sum.addmm_(a.t(), b);
  } else {
    sum.add_(MatrixProductIn(sum.scalar_type(), a.t(), b));
  }
}

using Visitor = absl::FunctionRef<void(const RowChunk&, const at::Tensor&)>;

// `factor`: the weight, of x's dtype.
void Visit(const at::Tensor& x, const at::Tensor& factor, int64_t chunk,
           Visitor visit) {
  for (int64_t first = 0; first == 0 || first < x.size(0); first += chunk) {
    const RowChunk rows = {first, std::min(chunk, x.size(0) - first)};
    visit(rows, ComputeLogits(rows.Of(x), factor));
  }
}

}  // namespace

void ForEachLogits(const at::Tensor& x, const at::Tensor& weight, int64_t chunk,
                   Visitor visit) {
  const at::NoGradGuard no_grad;  // MatrixProduct asks
  Visit(x, LowPrecisionCopy(weight, x.scalar_type()), chunk, visit);
}

LinearGradients GradientsOfLogits(
    const at::Tensor& x, const at::Tensor& weight, int64_t chunk, bool wants_x,
    bool wants_weight,
    absl::FunctionRef<at::Tensor(const RowChunk&, const at::Tensor&)>
        gradient) {
  const at::NoGradGuard no_grad;  // LowPrecisionCopy asks
  LinearGradients gradients;
  if (wants_x) gradients.x = at::empty_like(x);
  const at::Tensor factor = LowPrecisionCopy(weight, x.scalar_type());
  // `sum`: zeros, to which the weight's is added.
  const auto visit = [&](at::Tensor sum) {
    Visit(
        x, factor, chunk, [&](const RowChunk& rows, const at::Tensor& logits) {
          const at::Tensor dlogits = gradient(rows, logits).to(x.scalar_type());
          if (wants_x) {
            rows.Of(gradients.x).copy_(MatrixProduct(dlogits, factor));
          }
          if (wants_weight) AddProduct(dlogits, rows.Of(x), sum);
        });
  };
  const auto put = [&](const at::Tensor& place) { visit(place.zero_()); };
  if (wants_weight && GradientPlace::Put(weight, put)) return gradients;
  if (wants_weight) gradients.weight = at::zeros_like(weight);
  visit(gradients.weight);
  return gradients;
}

}  // namespace tandem
