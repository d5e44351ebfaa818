// State names of Hugging Face's files, which are not always those of the model
// that reads them.

#ifndef TANDEM_MODELS_HUGGING_FACE_STATE_NAMES_H_
#define TANDEM_MODELS_HUGGING_FACE_STATE_NAMES_H_

#include "core/weights/load_plan.h"
#include "models/hugging_face/model_config.h"

namespace tandem {

// Files of the model without its head (GPT2Model, LlamaModel; OpenAI's own
// GPT-2) lack the prefix "transformer." or "model.". Buffers that older
// versions saved are left out: GPT-2's causal masks (attn.bias,
// attn.masked_bias), Llama's rotary_emb.inv_freq. A tied lm_head.weight may be
// there or not.
NameRules StateNamesOf(const TransformerOptions& model);

// Whether save_pretrained writes a tensor of the model: not so a tied head.
bool IsWritten(const TransformerOptions& model, const std::string& name);

}  // namespace tandem

#endif  // TANDEM_MODELS_HUGGING_FACE_STATE_NAMES_H_
