// GPT-2's config.json: Hugging Face's GPT2Config.

#ifndef TANDEM_MODELS_HUGGING_FACE_GPT2_CONFIG_H_
#define TANDEM_MODELS_HUGGING_FACE_GPT2_CONFIG_H_

#include <nlohmann/json.hpp>
#include <string>

#include "models/hugging_face/config_fields.h"
#include "models/transformer/gpt.h"

namespace tandem {

// What is not GPT-2 as models/transformer/gpt.h has it (another activation, a
// scaling of attention by layers, cross-attention) is an error of `fields`.
// `note`, when it is set: what the config asks for beside, and is not done
// (dropout).
GptOptions ReadGpt2Config(ConfigFields& fields, std::string* note);

nlohmann::ordered_json WriteGpt2Config(const GptOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODELS_HUGGING_FACE_GPT2_CONFIG_H_
