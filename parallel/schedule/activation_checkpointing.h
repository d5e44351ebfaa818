// Activation checkpointing: which activations are computed again in backward
// instead of being kept. Those of some microbatches (torchgpipe's checkpoint=),
// or of some layers.

#ifndef TANDEM_PARALLEL_SCHEDULE_ACTIVATION_CHECKPOINTING_H_
#define TANDEM_PARALLEL_SCHEDULE_ACTIVATION_CHECKPOINTING_H_

#include <cstdint>
#include <string>

namespace tandem {

enum class ActivationCheckpointing { kNever, kExceptLast, kAlways };

// Are those of microbatch `index` of `count` kept?
inline bool KeepsActivations(ActivationCheckpointing which, int index,
                             int count) {
  return which == ActivationCheckpointing::kNever ||
         (which == ActivationCheckpointing::kExceptLast && index + 1 == count);
}

// Which layers, and how they are grouped. A group keeps its input alone, and is
// computed again as a whole: few large groups keep little for long, and much
// while one of them is computed again.
struct SelectiveCheckpointing {
  // A regular expression (ECMAScript's) that the name matches, in part at least
  // ("^transformer\\.h"). Empty: every layer, if `every` says so, else none.
  std::string layers = "";
  // So many neighbours are one group, the last one fewer; 0: each layer is one.
  int64_t every = 0;

  bool is_on() const { return !layers.empty() || every > 0; }
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_ACTIVATION_CHECKPOINTING_H_
