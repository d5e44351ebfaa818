// Llama's config.json: Hugging Face's LlamaConfig.

#ifndef TANDEM_MODELS_HUGGING_FACE_LLAMA_CONFIG_H_
#define TANDEM_MODELS_HUGGING_FACE_LLAMA_CONFIG_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/hugging_face/config_fields.h"
#include "models/transformer/llama.h"

namespace tandem {

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

#endif  // TANDEM_MODELS_HUGGING_FACE_LLAMA_CONFIG_H_
