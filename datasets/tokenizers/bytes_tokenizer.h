// Bytes as tokens: a tokenizer that needs no vocabulary.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTES_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTES_TOKENIZER_H_

#include <memory>

#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// Token 0 to 255 is the byte of that number, 256 the end of a text, which no
// text means and which decodes to nothing. Any bytes come back as they were.
std::unique_ptr<Tokenizer> MakeBytesTokenizer();

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTES_TOKENIZER_H_
