// KV cache: keys and values of the tokens that attention layers have seen, so
// that a decoder-only transformer computes each token once (transformers'
// StaticCache).
//
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
//
// Cached attention: causal self-attention of new tokens over a KV cache.

#ifndef TANDEM_MODELS_DECODING_KV_CACHE_H_
#define TANDEM_MODELS_DECODING_KV_CACHE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// Keys and values [n, kv_heads, tokens, head] of one attention layer.
struct KeysAndValues {
  at::Tensor keys;
  at::Tensor values;
};

// Cache of all attention layers of a model, or of a stage. Tokens come in
// passes, any number of them in each; in a pass every attention layer appends
// its own once, in the layers' order, which is the same in each pass.
// DecodingScope begins and ends a pass.
//
// Memory is taken when a layer first appends, for all `capacity` tokens at
// once: n * kv_heads * capacity * head values, twice a layer. Used by one
// thread at a time. Errors are c10::ValueError, thrown through the layer.
class KvCache {
 public:
  // For sequences of up to so many tokens, 1 or more.
  explicit KvCache(int64_t capacity);

  int64_t capacity() const { return capacity_; }
  // Tokens before the current pass: the position of the pass's first. Between
  // passes, all so far.
  int64_t past() const { return past_; }
  // Memory of all layers.
  size_t bytes() const;

  // Takes a pass's keys and values of the next attention layer and gives all of
  // that layer so far, these last: views of the cache, which the next Append of
  // the layer may overwrite. They have the dtype and device of the layer's
  // first. Throws where they exceed the capacity, or differ from the pass's
  // other layers in tokens, or from the layer's earlier ones in another size.
  KeysAndValues Append(const at::Tensor& keys, const at::Tensor& values);

  // Forgets all tokens but the first so many; between passes. Of an empty
  // cache, sequences may go on in another number n.
  void Truncate(int64_t tokens);

 private:
  friend class DecodingScope;

  void BeginPass();
  // Has the pass's tokens counted, or forgotten where the pass has failed.
  void EndPass(bool succeeded);
  void CheckPass(const at::Tensor& keys, const at::Tensor& values);

  const int64_t capacity_;
  int64_t past_ = 0;
  int64_t tokens_ = 0;  // of the current pass; 0: no layer has appended yet
  size_t next_ = 0;     // layer of the current pass
  bool is_in_pass_ = false;
  std::vector<KeysAndValues> layers_;  // of `capacity` tokens each
};

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

  // The cache of the calling thread's innermost scope; null outside of all:
  // sequences are given as a whole.
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

// Appends a pass's keys and values [n, kv_heads, tokens, head] to `cache` and
// gives the attention of its queries [n, heads, tokens, head] over all that the
// cache then has, each token over itself and those before it: [n, heads,
// tokens, head of values]. kv_heads divide heads; of each, heads / kv_heads
// neighbouring queries have the keys (grouped-query attention, as PyTorch's
// enable_gqa). Scores are scaled by 1 / sqrt(head). No gradients.
//
// The cache's errors, and LibTorch's for shapes that do not fit, are thrown.
at::Tensor CachedAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, KvCache& cache);

}  // namespace tandem

#endif  // TANDEM_MODELS_DECODING_KV_CACHE_H_
