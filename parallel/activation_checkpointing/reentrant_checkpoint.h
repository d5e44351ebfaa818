// Re-entrant activation checkpointing: torch.utils.checkpoint's with
// use_reentrant=True. The function runs without a graph; backward runs it with
// one, and does a backward of its own within.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_REENTRANT_CHECKPOINT_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_REENTRANT_CHECKPOINT_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "parallel/activation_checkpointing/options.h"

namespace torch {
namespace autograd {
struct Node;
}  // namespace autograd
}  // namespace torch

namespace tandem {

// The outputs of `function`, all defined, the same number both times. Throws
// what it throws, and c10::Error from a backward that is not backward() of a
// whole graph (torch::autograd::grad).
std::vector<at::Tensor> ReentrantCheckpoint(
    const CheckpointOptions& options,
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>
        function,
    const std::vector<at::Tensor>& inputs);

// Is the node its own, which is for backward() of a whole graph?
bool IsReentrantCheckpoint(const torch::autograd::Node& node);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_REENTRANT_CHECKPOINT_H_
