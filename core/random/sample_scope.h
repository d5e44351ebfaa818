// Sample scope: which samples of a job are being computed, what random numbers
// in a layer (dropout) are a function of, together with the layer's name. So a
// layer that runs again, in another thread, or on another layout, draws the
// same.

#ifndef TANDEM_CORE_RANDOM_SAMPLE_SCOPE_H_
#define TANDEM_CORE_RANDOM_SAMPLE_SCOPE_H_

#include <cstdint>
#include <optional>

namespace tandem {

// Rows of what a layer computes on are samples first, first + 1, ... of the
// global batch of step `step`.
struct Samples {
  uint64_t seed = 0;  // the job's
  int64_t step = 0;
  int64_t first = 0;
};

// While it lives, layers that the calling thread runs compute `samples`. Scopes
// nest.
class SampleScope {
 public:
  explicit SampleScope(const Samples& samples);
  ~SampleScope();
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

  // Of the calling thread's innermost scope; none outside of all.
  static std::optional<Samples> Current();

 private:
  std::optional<Samples> outer_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_RANDOM_SAMPLE_SCOPE_H_
