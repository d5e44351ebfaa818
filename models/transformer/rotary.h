// Rotary position embedding (Su et al., 2104.09864): queries and keys are
// turned by angles that grow with the token's position, so that their products
// depend on distances alone.

#ifndef TANDEM_MODELS_TRANSFORMER_ROTARY_H_
#define TANDEM_MODELS_TRANSFORMER_ROTARY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// Llama 3.1's and 3.2's stretching of positions, rope_type "llama3" under
// config.json's names: frequencies whose wave is longer than
// original_max_position_embeddings / low_freq_factor are divided by `factor`,
// those shorter than it / high_freq_factor stay, and between the two it goes
// over smoothly.
struct Llama3RopeScaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

// By how many radians each pair of elements turns from one position to the
// next: theta^(-2 i / head_dim) for i = 0 ... head_dim / 2 - 1, scaled.
std::vector<double> RotaryFrequencies(
    int64_t head_dim, double theta,
    const std::optional<Llama3RopeScaling>& scaling);

// Thread-safe.
class Rotary {
 public:
  explicit Rotary(const std::vector<double>& frequencies);

  // cos and sin of the angles of positions first ... first + tokens - 1, each
  // [tokens, 1, head_dim / 2], of the dtype and on the device of `like`. The
  // angles are computed in double (Hugging Face's are floats, which at position
  // 8192 are off by 1e-4).
  struct Turns {
    at::Tensor cos, sin;
  };
  Turns At(int64_t first, int64_t tokens, const at::Tensor& like);
  // The same of int64 positions [n, tokens] on the device of `like`: each [n,
  // tokens, 1, head_dim / 2].
  Turns AtPositions(const at::Tensor& positions, const at::Tensor& like);

 private:
  at::Tensor FrequenciesOn(const at::Tensor& like);

  absl::Mutex mutex_;
  at::Tensor frequencies_ ABSL_GUARDED_BY(mutex_);  // where last asked for
};

// x [n, tokens, heads, head_dim], turned: elements i and i + head_dim / 2 are a
// pair, as in Hugging Face's rotate_half (Meta's own files have pairs side by
// side). Differentiable any number of times.
at::Tensor Turned(const at::Tensor& x, const Rotary::Turns& turns);

}  // namespace tandem

#endif  // TANDEM_MODELS_TRANSFORMER_ROTARY_H_
