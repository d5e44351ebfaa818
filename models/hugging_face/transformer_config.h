// GPT-2's and Llama's config.json: Hugging Face's GPT2Config and LlamaConfig.

#ifndef TANDEM_MODELS_HUGGING_FACE_TRANSFORMER_CONFIG_H_
#define TANDEM_MODELS_HUGGING_FACE_TRANSFORMER_CONFIG_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/hugging_face/config_fields.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"

namespace tandem {

// Where a GPT-2 has dropout.
inline constexpr const char* kDropoutFields[] = {"resid_pdrop", "embd_pdrop",
                                                 "attn_pdrop"};

// What is not GPT-2 as models/transformer/gpt.h has it (another activation, a
// scaling of attention by layers, cross-attention) is an error of `fields`.
// `note`, when it is set: what the config asks for beside, and is not done
// (dropout).
GptOptions ReadGpt2Config(ConfigFields& fields, std::string* note);

// `ends`: the tokens that end a text; not given: GPT-2's, where the vocabulary
// has it. The first of them begins one, too. Dropout is the options'.
nlohmann::ordered_json WriteGpt2Config(
    const GptOptions& options, const std::optional<std::vector<int64_t>>& ends);

// Rotary positions as transformers writes them since version 5
// (rope_parameters) and before (rope_theta, rope_scaling). What is not Llama as
// models/transformer/llama.h has it (another activation or kind of positions, a
// sliding window) is an error of `fields`. `note`: as ReadGpt2Config.
LlamaOptions ReadLlamaConfig(ConfigFields& fields, std::string* note);

// With positions as both know them. `ends`: the tokens that end a text; none is
// said, too, for transformers would take Llama 2's.
nlohmann::ordered_json WriteLlamaConfig(const LlamaOptions& options,
                                        const std::vector<int64_t>& ends);

}  // namespace tandem

#endif  // TANDEM_MODELS_HUGGING_FACE_TRANSFORMER_CONFIG_H_
