// Cross entropy with its score, differentiable.

#ifndef TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_CROSS_ENTROPY_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_CROSS_ENTROPY_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tandem {

struct CrossEntropyResult {
  // Loss of each row, [n]; 0 for rows that are ignored. Differentiable.
  at::Tensor losses;
  // Whether the greatest logit, the first of equals, is the target's: bool [n];
  // false of those that are ignored.
  at::Tensor right;
};

// torch.nn.functional.cross_entropy(logits, targets, reduction="none",
// ignore_index=ignored): logits [n, classes], int64 targets [n]. Losses of
// double logits are doubles, all others floats, as under PyTorch's autocast.
//
// Float and bf16 on the CPU and on simulated devices take the fused kernels
// (core/fused/cross_entropy.h); all else, and what is differentiated twice,
// LibTorch's.
CrossEntropyResult CrossEntropyFunction(const at::Tensor& logits,
                                        const at::Tensor& targets,
                                        std::optional<int64_t> ignored);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_CROSS_ENTROPY_FUNCTION_H_
