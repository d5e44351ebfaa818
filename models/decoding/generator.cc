#include "models/decoding/generator.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/layer_list.h"
#include "models/decoding/kv_cache.h"

namespace tandem {
namespace {

// Tokens of a prompt that are read at once: all their logits are in memory.
constexpr size_t kPiece = 256;

absl::Status CheckLogits(const at::Tensor& logits, int64_t tokens) {
  if (logits.dim() == 3 && logits.size(0) == 1 && logits.size(1) == tokens) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the model gives ", logits.dim(), " dimensions for ", tokens,
                   " tokens: expected logits [1, tokens, vocabulary]"));
}

}  // namespace

Generator::Generator(LayerList layers, int64_t capacity, c10::Device device)
    : layers_(std::move(layers)),
      cache_(std::make_unique<KvCache>(capacity)),
      device_(device) {}

absl::StatusOr<at::Tensor> Generator::Continue(
    const std::vector<int64_t>& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t past = cache_->past();
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor logits, CatchTorchOr([&] {
        const DecodingScope scope(cache_.get());
        return Forward(
            layers_,
            at::tensor(tokens, at::kLong).to(device_).view({1, count}));
      }));
  if (cache_->past() != past + count) {
    return absl::InvalidArgumentError(
        "no layer of the model asks for the KV cache "
        "(models/decoding/kv_cache.h): it cannot go on from a prompt");
  }
  TANDEM_RETURN_IF_ERROR(CheckLogits(logits, count));
  return logits.select(0, 0).select(0, count - 1).clone();
}

absl::StatusOr<Generator> Generator::Read(LayerList layers,
                                          const std::vector<int64_t>& prompt,
                                          int64_t capacity,
                                          c10::Device device) {
  if (prompt.empty()) {
    return absl::InvalidArgumentError(
        "the prompt is empty: expected one token or more");
  }
  const auto count = static_cast<int64_t>(prompt.size());
  if (count > capacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", count, " tokens, and the model takes ",
                     capacity, ": shorten it"));
  }
  Generator generator(std::move(layers), capacity, device);
  for (size_t i = 0; i < prompt.size(); i += kPiece) {
    const size_t end = std::min(prompt.size(), i + kPiece);
    TANDEM_ASSIGN_OR_RETURN(
        generator.logits_,
        generator.Continue({prompt.begin() + static_cast<ptrdiff_t>(i),
                            prompt.begin() + static_cast<ptrdiff_t>(end)}));
  }
  generator.prompt_ = count;
  return generator;
}

absl::StatusOr<std::vector<int64_t>> Generator::Generate(
    const GenerationOptions& options, int64_t sample,
    const std::function<void(int64_t)>& on_token) {
  cache_->Truncate(prompt_);
  at::Tensor logits = logits_;
  std::vector<int64_t> tokens;
  const int64_t most =
      std::min(options.max_new_tokens, cache_->capacity() - prompt_);
  for (int64_t i = 0; i < most; ++i) {
    if (i > 0) {
      TANDEM_ASSIGN_OR_RETURN(logits, Continue({tokens.back()}));
    }
    TANDEM_ASSIGN_OR_RETURN(
        const int64_t token,
        SampleToken(logits, options.sampling, prompt_ + i, sample));
    if (absl::c_linear_search(options.ends, token)) break;
    tokens.push_back(token);
    if (on_token != nullptr) on_token(token);
  }
  return tokens;
}

}  // namespace tandem
