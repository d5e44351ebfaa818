// Backward in two parts (core/model/weight_gradient_sink.h) for operators of
// LibTorch whose own backward can be asked for some of the gradients alone.

#ifndef TANDEM_MODELS_FUNCTIONS_SPLIT_BACKWARD_H_
#define TANDEM_MODELS_FUNCTIONS_SPLIT_BACKWARD_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/device/host_memory.h"
#include "core/model/weight_gradient_sink.h"

namespace tandem {

// Whether the fused kernels of core/fused take `x`: float or bf16, dense, on
// the CPU or on a device that runs its kernels.
inline bool IsForFusedKernels(const at::Tensor& x) {
  return RunsCpuKernels(x.device().type()) && x.layout() == at::kStrided &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) &&
         x.dim() > 0;
}

// Concatenates the microbatches' operands along dimension 0. One product over
// the whole is faster than one for each, whose results have to be added up: for
// 512 x 512 and 4 x 32 rows by a third, for 8 x 16 rows by half. Those of one
// microbatch are given back as they are.
inline DeferredGradients::Operands JoinOperands(
    absl::Span<const DeferredGradients::Operands> microbatches) {
  if (microbatches.size() == 1) return microbatches.front();
  DeferredGradients::Operands joined;
  for (size_t i = 0; i < microbatches.front().size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const auto& each : microbatches) parts.push_back(each[i]);
    joined.push_back(at::cat(parts));
  }
  return joined;
}

// Gradients of x, of the weight and of the bias.
using WantedGradients = std::array<bool, 3>;
using OperatorGradients = std::array<at::Tensor, 3>;

// The backward of y = operator(x, weight, bias).
struct SplitOperator {
  std::string name;  // of its node in the graph
  // LibTorch's function. Those gradients that are not wanted are undefined.
  std::function<OperatorGradients(const at::Tensor& dy, const at::Tensor& x,
                                  const at::Tensor& weight,
                                  const WantedGradients& wanted)>
      backward;
  // Gradients of weight and bias are by-products of the one of x: they are
  // computed with it, and only handed over later.
  bool weights_come_with_input = false;
  // If set, computes them for several microbatches: of {weight} or {weight,
  // bias}, from {dy, x}.
  DeferredGradients::Function joined = nullptr;
  std::vector<int64_t> settings = {};  // for `joined`
};

// Whether what is computed of these now is to have a backward at all. Undefined
// tensors are ignored.
bool RecordsGradients(const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias);

// Whether what is computed of these now is to have a backward in two parts:
// there is a sink, and gradients are recorded. Undefined tensors are ignored.
bool WantsSplitBackward(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias);

// Makes `y`, which was computed below autograd, the output of a node of its
// own, which leaves the gradients of weight and bias to the current sink if
// there is one.
// Differentiable as often as operation.backward is.
at::Tensor WithSplitBackward(at::Tensor y, const at::Tensor& x,
                             const at::Tensor& weight, const at::Tensor& bias,
                             SplitOperator operation);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_SPLIT_BACKWARD_H_
