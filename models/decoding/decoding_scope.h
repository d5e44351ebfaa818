// Decoding scope: a forward pass that continues sequences, so that layers see
// the tokens of earlier passes in a KV cache.
//
//   KvCache cache(context);
//   at::Tensor Continue(const LayerList& layers, const at::Tensor& tokens) {
//     const DecodingScope scope(&cache);
//     return Forward(layers, tokens);  // [n, tokens, vocabulary]
//   }
//
// Layers ask for it while they run, so that any list of layers of which those
// that mix or number tokens do so generates, without another interface.

#ifndef TANDEM_MODELS_DECODING_DECODING_SCOPE_H_
#define TANDEM_MODELS_DECODING_DECODING_SCOPE_H_

#include <c10/core/GradMode.h>

#include <cstdint>

#include "models/decoding/kv_cache.h"

namespace tandem {

// While it lives, layers that the calling thread runs are given the tokens that
// come after cache->past() others, and compute without gradients. One pass of
// the layers each; when it ends the cache has grown by the pass's tokens, or
// not at all if an exception ends it. Throws c10::ValueError if the cache is in
// a pass already. Scopes of several caches nest.
class DecodingScope {
 public:
  explicit DecodingScope(KvCache* cache);
  ~DecodingScope();
  DecodingScope(const DecodingScope&) = delete;
  DecodingScope& operator=(const DecodingScope&) = delete;

  // Of the calling thread's innermost scope; null outside of all: sequences are
  // given as a whole.
  static KvCache* Current();
  // Current()->past(), or 0 outside of all: the position of the first token
  // that a layer is given.
  static int64_t Past();

 private:
  KvCache* const cache_;
  KvCache* const outer_;
  const int exceptions_;  // on their way when it began
  const c10::AutoGradMode no_grad_;
};

}  // namespace tandem

#endif  // TANDEM_MODELS_DECODING_DECODING_SCOPE_H_
