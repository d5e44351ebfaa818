// Options of activation checkpointing: those of torch.utils.checkpoint.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_OPTIONS_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_OPTIONS_H_

#include <functional>
#include <memory>
#include <string>

namespace tandem {

struct CheckpointOptions {
  // Runs the function without a graph first, and does a backward within
  // backward. PyTorch advises against it: torch::autograd::grad is refused, and
  // DistributedDataParallel needs static_graph where a layer runs twice.
  bool use_reentrant = false;
  // What operators draw from LibTorch's default generators, of any device, is
  // drawn again (core/random/draws.h).
  bool preserve_rng_state = true;
  // Tensors that are computed again are compared with the first ones by shape,
  // dtype and device (their number is compared in any case). Non-re-entrant
  // alone, as the next one.
  bool determinism_check = true;
  // Ends the function, by an exception, when all that backward needs is there.
  bool early_stop = true;
  // For messages: "layers h.0 to h.3".
  std::string name = "the checkpointed function";
  // What it gives is held while the function runs again, and then dropped: a
  // guard. (The second of PyTorch's context_fn.) Null: nothing.
  std::function<std::shared_ptr<void>()> recompute_context = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_OPTIONS_H_
