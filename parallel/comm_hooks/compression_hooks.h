// Communication hooks that send gradients in fewer bits.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_COMPRESSION_HOOKS_H_
#define TANDEM_PARALLEL_COMM_HOOKS_COMPRESSION_HOOKS_H_

#include <c10/core/ScalarType.h>

#include "parallel/comm_hooks/communication_hook.h"

namespace tandem {

// Hooks keep what they need from step to step, memory included, in themselves:
// one hook serves one reducer. Copies of a hook share it.

// The mean, without compression: what a reducer without a hook does.
// (PyTorch's allreduce_hook. That divides by the number of ranks, where DDP
// without a hook multiplies by its inverse, as is done here: the bits are the
// same for 1, 2, 4, ... ranks.)
CommunicationHook AllReduceHook();

// PyTorch's fp16_compress_hook and bf16_compress_hook: gradients are cast to
// half precision, divided by the number of ranks, summed in half precision and
// cast back. Half the bytes travel. float16 keeps 11 significant bits and
// overflows at 65504, which shows as an infinite gradient; bfloat16 keeps 8
// bits and float's range. Both Gloo and ranks of one host sum both types as
// they are: nothing is widened on the way.
//
// Gradients that have the dtype already are only averaged.
CommunicationHook Fp16CompressHook();
CommunicationHook Bf16CompressHook();

// The one of that dtype: kHalf or kBFloat16.
CommunicationHook CompressHook(c10::ScalarType dtype);

// PyTorch's fp16_compress_wrapper and bf16_compress_wrapper: `hook` sees the
// bucket in half precision, and what it leaves there is cast back. So
// Fp16CompressHook() is Fp16CompressWrapper() of a hook that takes the mean.
CommunicationHook Fp16CompressWrapper(CommunicationHook hook);
CommunicationHook Bf16CompressWrapper(CommunicationHook hook);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_COMM_HOOKS_COMPRESSION_HOOKS_H_
