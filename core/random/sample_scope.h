// Sample scope: which samples of a job are being computed, what random numbers
// in a layer (dropout) are a function of, together with the layer's name. So a
// layer that runs again, in another thread, or on another layout, draws the
// same.

#ifndef TANDEM_CORE_RANDOM_SAMPLE_SCOPE_H_
#define TANDEM_CORE_RANDOM_SAMPLE_SCOPE_H_

#include <optional>

#include "core/context/compute_context.h"

namespace tandem {

// While it lives, layers that the calling thread runs compute `samples`. Scopes
// nest.
class SampleScope : public ComputeContext::Scope {
 public:
  explicit SampleScope(const Samples& samples)
      : Scope([&](ComputeContext& context) { context.samples = samples; }) {}

  // The calling thread's; none outside of all scopes.
  static std::optional<Samples> Current() {
    return ComputeContext::Current().samples;
  }
};

}  // namespace tandem

#endif  // TANDEM_CORE_RANDOM_SAMPLE_SCOPE_H_
