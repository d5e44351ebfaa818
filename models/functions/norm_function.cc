#include "models/functions/norm_function.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones.h>

#include <tuple>
#include <utility>
#include <vector>

#include "core/fused/layer_norm.h"
#include "models/functions/image_kernels.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

OperatorGradients ToArray(Results results) {
  return {std::move(std::get<0>(results)), std::move(std::get<1>(results)),
          std::move(std::get<2>(results))};
}

// The gradients of weight and bias come from a pass of their own over dy and x,
// so that nothing is computed twice in two parts.
SplitOperator LayerNormOperator(const at::Tensor& mean, const at::Tensor& rstd,
                                const at::Tensor& bias) {
  SplitOperator operation;
  operation.name = "SplitLayerNormBackward";
  operation.backward = [mean, rstd, bias](const at::Tensor& dy,
                                          const at::Tensor& x,
                                          const at::Tensor& weight,
                                          const WantedGradients& wanted) {
    if (IsForFusedKernels(x) && !at::GradMode::is_enabled()) {
      auto [dx, dweight, dbias] = FusedLayerNormBackward(
          dy, x, mean, rstd, weight, wanted[0], wanted[1] || wanted[2]);
      return OperatorGradients{dx, wanted[1] ? dweight : at::Tensor(),
                               wanted[2] ? dbias : at::Tensor()};
    }
    // Autocast may have normalized x in another dtype than its own.
    return ToArray(at::native_layer_norm_backward(dy, x.to(dy.scalar_type()),
                                                  {x.size(-1)}, mean, rstd,
                                                  weight, bias, wanted));
  };
  return operation;
}

Results NativeBatchNorm(const at::Tensor& x,
                        const BatchNormArguments& arguments) {
  return at::native_batch_norm(x, arguments.weight, arguments.bias,
                               arguments.running_mean, arguments.running_var,
                               arguments.training, arguments.momentum,
                               arguments.eps);
}

// The gradient of x needs the sums over the batch that those of weight and bias
// are: alone it takes as long as all three, and the latter alone half of that.
SplitOperator BatchNormOperator(const BatchNormArguments& arguments,
                                const BatchStatistics& statistics) {
  SplitOperator operation;
  operation.name = "SplitBatchNormBackward";
  operation.weights_come_with_input = true;
  operation.backward = [arguments, statistics](const at::Tensor& dy,
                                               const at::Tensor& x,
                                               const at::Tensor& weight,
                                               const WantedGradients& wanted) {
    return ToArray(at::native_batch_norm_backward(
        dy, x, weight, arguments.running_mean, arguments.running_var,
        statistics.mean, statistics.inverse_deviation, arguments.training,
        arguments.eps, wanted));
  };
  return operation;
}

// Asks in training alone: elsewhere little would be gained.
at::Tensor InFasterFormat(const at::Tensor& x,
                          const BatchNormArguments& arguments) {
  const bool has_backward = RecordsGradients(x, {}, {});
  if (!has_backward || !arguments.training) return x;
  const auto run = [&](const at::Tensor& images) {
    const at::TensorOptions options(at::kCPU);
    BatchNormArguments plain = arguments;
    plain.weight = at::ones({x.size(1)}, options.dtype(at::kFloat));
    plain.bias = plain.weight;
    plain.running_mean.reset();
    plain.running_var.reset();
    const auto [y, mean, inverse_deviation] = NativeBatchNorm(images, plain);
    return std::get<0>(at::native_batch_norm_backward(
        y, images, plain.weight, /*running_mean=*/{}, /*running_var=*/{}, mean,
        inverse_deviation, /*train=*/true, plain.eps, {true, true, true}));
  };
  return InFormat(x, FasterFormat(x, x.scalar_type(), {"batch norm", {}}, run));
}

}  // namespace

at::Tensor LayerNormFunction(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, double eps) {
  const bool is_fused = IsForFusedKernels(x);
  if (!is_fused && !WantsSplitBackward(x, weight, bias)) {
    return at::layer_norm(x, weight.sizes(), weight, bias, eps);
  }
  Results results;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    results = is_fused
                  ? FusedLayerNorm(x, weight, bias, eps)
                  : at::native_layer_norm(x, weight.sizes(), weight, bias, eps);
  }
  auto& [y, mean, rstd] = results;
  if (!RecordsGradients(x, weight, bias)) return y;
  return WithSplitBackward(y, x, weight, bias,
                           LayerNormOperator(mean, rstd, bias));
}

at::Tensor BatchNormFunction(const at::Tensor& given,
                             const BatchNormArguments& arguments,
                             BatchStatistics* statistics) {
  const at::Tensor x = InFasterFormat(given, arguments);
  const at::Tensor& weight = arguments.weight;
  const at::Tensor& bias = arguments.bias;
  const bool splits = WantsSplitBackward(x, weight, bias);
  if (!splits && statistics == nullptr) {
    return at::batch_norm(x, weight, bias, arguments.running_mean,
                          arguments.running_var, arguments.training,
                          arguments.momentum, arguments.eps,
                          at::globalContext().userEnabledCuDNN());
  }
  Results results;
  if (splits) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    results = NativeBatchNorm(x, arguments);
  } else {
    results = NativeBatchNorm(x, arguments);
  }
  const BatchStatistics found = {std::get<1>(results), std::get<2>(results)};
  if (statistics != nullptr) {
    *statistics = {found.mean.detach(), found.inverse_deviation.detach()};
  }
  const at::Tensor& y = std::get<0>(results);
  if (!splits) return y;
  return WithSplitBackward(y, x, weight, bias,
                           BatchNormOperator(arguments, found));
}

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
