// Text generation: tokens that continue a prompt, one after the other, from a
// decoder-only transformer as a list of layers (transformers' generate()).

#ifndef TANDEM_MODELS_DECODING_GENERATOR_H_
#define TANDEM_MODELS_DECODING_GENERATOR_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "models/decoding/kv_cache.h"
#include "models/decoding/sampling.h"

namespace tandem {

struct GenerationOptions {
  int64_t max_new_tokens = 100;
  // Any of these ends the text, and is not part of it.
  std::vector<int64_t> ends;
  SamplingOptions sampling;
};

// A prompt that has been read once, and is continued any number of times. Used
// by one thread at a time.
class Generator {
 public:
  // Reads `prompt`. `layers`, in evaluation mode and on `device`, take int64
  // [1, tokens] and give logits [1, tokens, vocabulary]; those that mix or
  // number tokens ask for the KV cache (models/decoding/kv_cache.h). With
  // the prompt, texts have up to `capacity` tokens: the model's context or
  // fewer.
  //
  // InvalidArgument for an empty prompt, one that is longer than the capacity,
  // layers none of which asks for the cache, and what layers throw.
  static absl::StatusOr<Generator> Read(
      LayerList layers, const std::vector<int64_t>& prompt, int64_t capacity,
      c10::Device device = c10::Device(c10::kCPU));

  // The tokens of text number `sample`, without the prompt: as many as asked
  // for, fewer where the end comes or the capacity is used up. Each is told to
  // `on_token` (which may be null) as soon as it is known. InvalidArgument as
  // SampleToken.
  absl::StatusOr<std::vector<int64_t>> Generate(
      const GenerationOptions& options, int64_t sample = 0,
      const std::function<void(int64_t)>& on_token = nullptr);

 private:
  Generator(LayerList layers, int64_t capacity, c10::Device device);
  // The logits [vocabulary] behind the last of these tokens.
  absl::StatusOr<at::Tensor> Continue(const std::vector<int64_t>& tokens);

  LayerList layers_;
  std::unique_ptr<KvCache> cache_;
  c10::Device device_;
  int64_t prompt_ = 0;  // tokens
  at::Tensor logits_;   // behind the prompt
};

}  // namespace tandem

#endif  // TANDEM_MODELS_DECODING_GENERATOR_H_
