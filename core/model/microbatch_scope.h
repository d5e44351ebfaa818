// Microbatch scope: which microbatch of a mini-batch is being computed, for
// layers that gather something over all of them (BatchNorm's running
// statistics).

#ifndef TANDEM_CORE_MODEL_MICROBATCH_SCOPE_H_
#define TANDEM_CORE_MODEL_MICROBATCH_SCOPE_H_

#include <optional>

#include "core/context/compute_context.h"

namespace tandem {

// While it lives, layers that the calling thread runs compute `microbatch`.
// Scopes nest.
class MicrobatchScope : public ComputeContext::Scope {
 public:
  explicit MicrobatchScope(const Microbatch& microbatch)
      : Scope([&](ComputeContext& context) {
          context.microbatch = microbatch;
        }) {}

  // The calling thread's; none outside of all scopes: a batch as a whole.
  static std::optional<Microbatch> Current() {
    return ComputeContext::Current().microbatch;
  }
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_MICROBATCH_SCOPE_H_
