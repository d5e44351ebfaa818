// Activation checkpointing: which microbatches' activations are computed again
// in backward instead of being kept (torchgpipe's checkpoint=).

#ifndef TANDEM_PARALLEL_SCHEDULE_ACTIVATION_CHECKPOINTING_H_
#define TANDEM_PARALLEL_SCHEDULE_ACTIVATION_CHECKPOINTING_H_

namespace tandem {

enum class ActivationCheckpointing { kNever, kExceptLast, kAlways };

// Are those of microbatch `index` of `count` kept?
inline bool KeepsActivations(ActivationCheckpointing which, int index,
                             int count) {
  return which == ActivationCheckpointing::kNever ||
         (which == ActivationCheckpointing::kExceptLast && index + 1 == count);
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_ACTIVATION_CHECKPOINTING_H_
