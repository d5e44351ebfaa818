// KV cache: keys and values of the tokens that attention layers have seen, so
// that a decoder-only transformer computes each token once (transformers'
// StaticCache).

#ifndef TANDEM_MODELS_DECODING_KV_CACHE_H_
#define TANDEM_MODELS_DECODING_KV_CACHE_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// Keys and values [n, kv_heads, tokens, head] of one attention layer.
struct KeysAndValues {
  at::Tensor keys;
  at::Tensor values;
};

// Of all attention layers of a model, or of a stage. Tokens come in passes, any
// number of them in each; in a pass every attention layer appends its own once,
// in the layers' order, which is the same in each pass. DecodingScope begins
// and ends a pass (models/decoding/decoding_scope.h).
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
  // Of all layers' memory.
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

}  // namespace tandem

#endif  // TANDEM_MODELS_DECODING_KV_CACHE_H_
