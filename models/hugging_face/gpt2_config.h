// GPT-2's config.json: Hugging Face's GPT2Config.

#ifndef TANDEM_MODELS_HUGGING_FACE_GPT2_CONFIG_H_
#define TANDEM_MODELS_HUGGING_FACE_GPT2_CONFIG_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/hugging_face/config_fields.h"
#include "models/transformer/gpt.h"

namespace tandem {

// Where it has dropout.
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

}  // namespace tandem

#endif  // TANDEM_MODELS_HUGGING_FACE_GPT2_CONFIG_H_
