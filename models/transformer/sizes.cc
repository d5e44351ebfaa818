#include "models/transformer/sizes.h"

#include <map>

namespace tandem {
namespace {

// With GPT-2's context, vocabulary and tied head.
GptOptions Gpt2(int64_t layers, int64_t width, int64_t heads) {
  GptOptions options = Gpt2Options();
  options.layers = layers;
  options.width = width;
  options.heads = heads;
  return options;
}

// Its vocabulary is the 256 bytes and the end of a text, rounded up to whole
// vectors.
GptOptions GptBaby() {
  GptOptions options;
  options.layers = 6;
  options.width = 384;
  options.heads = 6;
  options.context = 256;
  options.vocabulary = 320;
  options.ties_lm_head = true;
  return options;
}

GptOptions GptTinyTied() {
  GptOptions options;
  options.ties_lm_head = true;
  return options;
}

LlamaOptions TinyTied() {
  LlamaOptions options;
  options.ties_lm_head = true;
  return options;
}

LlamaOptions LlamaBaby() {
  LlamaOptions options;
  options.layers = 6;
  options.width = 384;
  options.ffn_width = 1024;
  options.heads = 8;
  options.kv_heads = 4;
  options.vocabulary = 320;
  options.context = 256;
  return options;
}

LlamaOptions Llama2_7b() {
  LlamaOptions options;
  options.layers = 32;
  options.width = 4096;
  options.ffn_width = 11008;
  options.heads = 32;
  options.kv_heads = 32;
  options.vocabulary = 32000;
  options.context = 4096;
  return options;
}

LlamaOptions TinyLlama() {
  LlamaOptions options;
  options.layers = 22;
  options.width = 2048;
  options.ffn_width = 5632;
  options.heads = 32;
  options.kv_heads = 4;
  options.vocabulary = 32000;
  options.context = 2048;
  return options;
}

LlamaOptions Llama3_8b() {
  LlamaOptions options;
  options.layers = 32;
  options.width = 4096;
  options.ffn_width = 14336;
  options.heads = 32;
  options.kv_heads = 8;
  options.vocabulary = 128256;
  options.context = 8192;
  options.rope_theta = 500000;
  return options;
}

LlamaOptions Llama3_70b() {
  LlamaOptions options = Llama3_8b();
  options.layers = 80;
  options.width = 8192;
  options.ffn_width = 28672;
  options.heads = 64;
  return options;
}

LlamaOptions Llama3_2(int64_t layers, int64_t width, int64_t heads) {
  LlamaOptions options = Llama3_8b();
  options.layers = layers;
  options.width = width;
  options.ffn_width = 8192;
  options.heads = heads;
  options.context = 131072;
  options.rope_scaling = Llama3RopeScaling{/*factor=*/32};
  options.ties_lm_head = true;
  return options;
}

const std::map<std::string, GptOptions, std::less<>>& Gpts() {
  static const auto* sizes = new std::map<std::string, GptOptions, std::less<>>{
      {"gpt2", Gpt2Options()},
      {"gpt2-large", Gpt2(36, 1280, 20)},
      {"gpt2-medium", Gpt2(24, 1024, 16)},
      {"gpt2-xl", Gpt2(48, 1600, 25)},
      {"gpt_baby", GptBaby()},
      {"gpt_tiny", GptOptions()},
      {"gpt_tiny_tied", GptTinyTied()},
  };
  return *sizes;
}

const std::map<std::string, LlamaOptions, std::less<>>& Llamas() {
  static const auto* sizes =
      new std::map<std::string, LlamaOptions, std::less<>>{
          {"llama-2-7b", Llama2_7b()},
          {"llama-3-70b", Llama3_70b()},
          {"llama-3-8b", Llama3_8b()},
          {"llama-3.2-1b", Llama3_2(16, 2048, 32)},
          {"llama-3.2-3b", Llama3_2(28, 3072, 24)},
          {"llama_baby", LlamaBaby()},
          {"llama_tiny", LlamaOptions()},
          {"llama_tiny_tied", TinyTied()},
          {"tinyllama", TinyLlama()},
      };
  return *sizes;
}

template <typename Options>
std::optional<Options> Find(
    const std::map<std::string, Options, std::less<>>& sizes,
    absl::string_view name) {
  const auto found = sizes.find(name);
  if (found == sizes.end()) return std::nullopt;
  return found->second;
}

// `given`, if it is.
void Put(int64_t given, int64_t* size) {
  if (given != 0) *size = given;
}

// What both kinds have.
template <typename Options>
void PutShared(const TransformerSizes& sizes, Options* model) {
  Put(sizes.layers, &model->layers);
  Put(sizes.width, &model->width);
  Put(sizes.heads, &model->heads);
}

template <typename Sizes>
std::vector<std::string> SizeNames(const Sizes& sizes) {
  std::vector<std::string> names;
  for (const auto& item : sizes) names.push_back(item.first);
  return names;
}

}  // namespace

std::optional<GptOptions> GptSize(absl::string_view name) {
  return Find(Gpts(), name);
}

std::optional<LlamaOptions> LlamaSize(absl::string_view name) {
  return Find(Llamas(), name);
}

GptOptions WithSizes(GptOptions model, const TransformerSizes& sizes) {
  PutShared(sizes, &model);
  return model;
}

LlamaOptions WithSizes(LlamaOptions model, const TransformerSizes& sizes) {
  PutShared(sizes, &model);
  Put(sizes.kv_heads, &model.kv_heads);
  Put(sizes.ffn_width, &model.ffn_width);
  return model;
}

std::vector<std::string> GptSizes() { return SizeNames(Gpts()); }

std::vector<std::string> LlamaSizes() { return SizeNames(Llamas()); }

}  // namespace tandem
