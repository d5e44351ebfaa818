#include "models/functions/rms_norm_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "models/functions/split_backward.h"

namespace tandem {
namespace {

at::Tensor Wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// [..., 1], of wide x
at::Tensor InverseRms(const at::Tensor& x, double eps) {
  return x.square().mean(/*dim=*/-1, /*keepdim=*/true).add(eps).rsqrt();
}

at::Tensor ScaleGradient(const at::Tensor& dy, const at::Tensor& normalised,
                         const at::Tensor& weight) {
  return (dy * normalised)
      .reshape({-1, dy.size(-1)})
      .sum(/*dim=*/0)
      .to(weight.scalar_type());
}

SplitOperator RmsNormOperator(const at::Tensor& kept, double eps) {
  SplitOperator operation;
  operation.name = "RmsNormBackward";
  operation.backward = [kept, eps](const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& weight,
                                   const WantedGradients& wanted) {
    const at::Tensor wide = Wide(x);
    // Differentiated itself, it depends on x.
    const at::Tensor inverse =
        at::GradMode::is_enabled() ? InverseRms(wide, eps) : kept;
    const at::Tensor normalised = wide * inverse;
    OperatorGradients gradients;
    if (wanted[0]) {
      const at::Tensor d = Wide(dy) * Wide(weight);
      const at::Tensor along = (d * normalised).mean(/*dim=*/-1, true);
      gradients[0] = ((d - normalised * along) * inverse).to(x.scalar_type());
    }
    if (wanted[1]) {
      gradients[1] = ScaleGradient(Wide(dy), normalised, weight);
    }
    return gradients;
  };
  return operation;
}

}  // namespace

at::Tensor RmsNormFunction(const at::Tensor& x, const at::Tensor& weight,
                           double eps) {
  at::Tensor y;
  at::Tensor inverse;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor wide = Wide(x);
    inverse = InverseRms(wide, eps);
    y = (wide * inverse * Wide(weight)).to(x.scalar_type());
  }
  if (!RecordsGradients(x, weight, /*bias=*/{})) return y;
  return WithSplitBackward(y, x, weight, /*bias=*/{},
                           RmsNormOperator(inverse, eps));
}

}  // namespace tandem
