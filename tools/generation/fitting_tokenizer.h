// Fitting tokenizer: whether a model's tokens can be a tokenizer's.

#ifndef TANDEM_TOOLS_GENERATION_FITTING_TOKENIZER_H_
#define TANDEM_TOOLS_GENERATION_FITTING_TOKENIZER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// Vocabularies of a model and of its tokenizer are seldom of the same size:
// models are padded to a multiple of 64 or 128 (GPT-2's 50257 tokens to 50304,
// Phi-2's 50295 to 51200), and tokens that were added later have no place in
// some. So a tokenizer may have a twentieth of the tokens less than the model,
// or 128, and as much more, or 256; of the ones more its end of a text does not
// count, where it is the last. InvalidArgument, with both sizes, for another
// one: what the model says would be read as something else.
//
// `texts`: how many tokens the model's texts had, where that is known; 0: as
// many as the model.
absl::Status CheckTokenizerFits(const Tokenizer& tokenizer, int64_t model,
                                int64_t texts);

}  // namespace tandem

#endif  // TANDEM_TOOLS_GENERATION_FITTING_TOKENIZER_H_
