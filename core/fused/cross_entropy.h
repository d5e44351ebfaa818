// Cross entropy of rows of logits and their targets, with what it takes to say
// how many are right: softmax, its logarithm, loss and score in one pass over
// memory, and the gradient in another.

#ifndef TANDEM_CORE_FUSED_CROSS_ENTROPY_H_
#define TANDEM_CORE_FUSED_CROSS_ENTROPY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace tandem {

// Cross entropy of logits [n, classes], float or bf16, and int64 targets [n]:
// for each row the loss and the logarithm of the sum of the logits'
// exponentials, floats [n]; and whether the greatest logit, the first of
// equals, is the target's, bool [n]. Rows whose target is `ignored` have no
// loss and are not right. Computed in float; the same bits for any number of
// threads and on any instruction set but for the logarithm, which is the C
// library's.
//
// Operators of LibTorch (tandem::cross_entropy,
// tandem::cross_entropy_backward), for the CPU and simulated devices. Not
// differentiable: for autograd functions to call. Throws c10::Error on shapes
// and dtypes that do not fit, and on targets out of range.
std::tuple<at::Tensor, at::Tensor, at::Tensor> FusedCrossEntropy(
    const at::Tensor& logits, const at::Tensor& targets,
    std::optional<int64_t> ignored);

// The gradient of the logits, from that of the losses, float [n].
at::Tensor FusedCrossEntropyBackward(const at::Tensor& dlosses,
                                     const at::Tensor& logits,
                                     const at::Tensor& targets,
                                     const at::Tensor& log_sums,
                                     std::optional<int64_t> ignored);

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_CROSS_ENTROPY_H_
