// Tokenizers from a tokenizer.json, the file of Hugging Face's tokenizers.

#ifndef TANDEM_DATASETS_TOKENIZERS_TOKENIZER_JSON_H_
#define TANDEM_DATASETS_TOKENIZERS_TOKENIZER_JSON_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// Byte-level BPE, as GPT-2's, Llama 3's, GPT-NeoX's and many others': model BPE
// without dropout, prefixes and suffixes of words; the normalizer NFC, or none;
// a pre_tokenizer that ends with ByteLevel (byte_pair/pre_tokenizer.h); added
// tokens that take no white space along; of the post_processor what it puts
// before and after a single text. What ends a text the files beside it say,
// else its usual names (end_of_text.h).
//
// InvalidArgument, with the field, for a file that says anything else: it would
// be read wrongly.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizerJson(
    const std::string& path);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_TOKENIZER_JSON_H_
