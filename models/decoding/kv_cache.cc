#include "models/decoding/kv_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/util/Exception.h>

#include <array>
#include <exception>
#include <optional>

namespace tandem {
namespace {

constexpr int64_t kTokens = 2;  // the dimension

// Sizes of a layer's memory for keys or values like these.
std::array<int64_t, 4> MemorySizes(const at::Tensor& some, int64_t capacity) {
  return {some.size(0), some.size(1), capacity, some.size(3)};
}

bool Fits(const at::Tensor& memory, const at::Tensor& some) {
  return memory.defined() &&
         memory.sizes() == at::IntArrayRef(MemorySizes(some, memory.size(2)));
}

// Memory for as many sequences of the same heads, where `kept` tokens are not
// to be lost.
void MakeRoom(const at::Tensor& some, int64_t capacity, int64_t kept,
              at::Tensor& memory) {
  if (Fits(memory, some)) return;
  TORCH_CHECK_VALUE(
      kept == 0, "KV cache: a layer gives keys or values ", some.sizes(),
      " [n, kv_heads, tokens, head] after ", kept,
      " tokens, but its memory is ",
      memory.defined() ? memory.sizes() : at::IntArrayRef(),
      ": sequences go on with the sizes and layers that they began with");
  memory = at::empty(MemorySizes(some, capacity), some.options());
}

at::Tensor Put(const at::Tensor& some, int64_t past, at::Tensor& memory) {
  const int64_t tokens = some.size(kTokens);
  memory.narrow(kTokens, past, tokens).copy_(some);
  return memory.narrow(kTokens, 0, past + tokens);
}

thread_local KvCache* current = nullptr;

// [tokens, past + tokens]: whether the query of a row sees the key of a column.
// None where all see all.
std::optional<at::Tensor> SeenKeys(const at::Tensor& queries, int64_t past) {
  const int64_t tokens = queries.size(2);
  if (tokens == 1) return std::nullopt;
  return at::ones({tokens, past + tokens}, queries.options().dtype(at::kBool))
      .tril(past);
}

}  // namespace

KvCache::KvCache(int64_t capacity) : capacity_(capacity) {
  TORCH_CHECK_VALUE(capacity >= 1, "KV cache for ", capacity,
                    " tokens: expected 1 or more");
}

size_t KvCache::bytes() const {
  size_t bytes = 0;
  for (const KeysAndValues& layer : layers_) {
    bytes += layer.keys.nbytes() + layer.values.nbytes();
  }
  return bytes;
}

void KvCache::CheckPass(const at::Tensor& keys, const at::Tensor& values) {
  TORCH_CHECK_VALUE(is_in_pass_,
                    "KV cache: keys and values outside of a DecodingScope");
  TORCH_CHECK_VALUE(
      keys.dim() == 4 && values.dim() == 4 &&
          keys.size(kTokens) == values.size(kTokens) && keys.size(kTokens) >= 1,
      "KV cache: keys ", keys.sizes(), " and values ", values.sizes(),
      ": expected both as [n, kv_heads, tokens, head], of one or "
      "more tokens");
  const int64_t tokens = keys.size(kTokens);
  if (tokens_ == 0) tokens_ = tokens;
  TORCH_CHECK_VALUE(tokens == tokens_, "KV cache: an attention layer has ",
                    tokens, " tokens in a pass in which others have ", tokens_);
  TORCH_CHECK_VALUE(past_ + tokens <= capacity_, "KV cache: ", tokens,
                    " tokens after ", past_, " exceed its capacity of ",
                    capacity_);
}

KeysAndValues KvCache::Append(const at::Tensor& keys,
                              const at::Tensor& values) {
  CheckPass(keys, values);
  if (next_ == layers_.size()) layers_.emplace_back();
  KeysAndValues& layer = layers_[next_++];
  MakeRoom(keys, capacity_, past_, layer.keys);
  MakeRoom(values, capacity_, past_, layer.values);
  return {Put(keys, past_, layer.keys), Put(values, past_, layer.values)};
}

void KvCache::Truncate(int64_t tokens) {
  TORCH_CHECK_VALUE(!is_in_pass_ && tokens >= 0 && tokens <= past_,
                    "KV cache of ", past_, " tokens, ",
                    is_in_pass_ ? "in" : "between",
                    " passes: cannot be truncated to ", tokens,
                    "; expected up to its number, between passes");
  past_ = tokens;
}

void KvCache::BeginPass() {
  TORCH_CHECK_VALUE(!is_in_pass_, "KV cache: a pass within a pass");
  is_in_pass_ = true;
  tokens_ = 0;
  next_ = 0;
}

void KvCache::EndPass(bool succeeded) {
  if (succeeded) past_ += tokens_;
  is_in_pass_ = false;
}

DecodingScope::DecodingScope(KvCache* cache)
    : cache_(cache),
      outer_(current),
      exceptions_(std::uncaught_exceptions()),
      no_grad_(false) {
  cache_->BeginPass();
  current = cache_;
}

DecodingScope::~DecodingScope() {
  current = outer_;
  cache_->EndPass(/*succeeded=*/std::uncaught_exceptions() == exceptions_);
}

KvCache* DecodingScope::Current() { return current; }

int64_t DecodingScope::Past() {
  return current == nullptr ? 0 : current->past();
}

at::Tensor CachedAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, KvCache& cache) {
  const KeysAndValues all = cache.Append(keys, values);
  return at::scaled_dot_product_attention(
      queries, all.keys, all.values, SeenKeys(queries, cache.past()),
      /*dropout_p=*/0, /*is_causal=*/false, /*scale=*/std::nullopt,
      /*enable_gqa=*/queries.size(1) != keys.size(1));
}

}  // namespace tandem
