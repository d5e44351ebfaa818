// SentencePiece tokenizers (Kudo and Richardson, 1808.06226): tokenizer.model
// of Llama 1 and 2, Mistral, Gemma and T5, by Google's library, and a check of
// the file before the library trusts it.

#ifndef TANDEM_DATASETS_TOKENIZERS_SENTENCE_PIECE_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_SENTENCE_PIECE_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// Whether a file of these bytes may be a sentencepiece model: a serialised
// ModelProto begins with its first piece. A rank file of tiktoken's does not.
bool IsSentencePiece(absl::string_view model);

// DataLoss, which says what is wrong, where following the normaliser's compiled
// character map (normalizer_spec.precompiled_charsmap, and the denormaliser's)
// would lead out of it: the library reads its trie (Darts' double array: Aoe,
// 1989) and its replacements where the file points to. All else the library
// checks by itself.
absl::Status CheckSentencePiece(absl::string_view model);

// Unigram and BPE models, with or without byte_fallback. Tokens are those of
// Python's sentencepiece: bytes that are no UTF-8 count as U+FFFD, and control
// pieces (<s>, </s>) are never taken from a text, whatever
// SpecialTokensInText says. prefix() is the model's bos, where it has one, as
// Llama's, Mistral's and Gemma's authors put it; end_of_text() its eos.
//
// Decode gives each piece's own text, control pieces none: that of the first
// piece keeps the space that most models put before a text, which sentencepiece
// takes off, so that pieces can be decoded one by one.
//
// DataLoss for a file that is damaged or no model; else the errors of files.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadSentencePiece(
    const std::string& path);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_SENTENCE_PIECE_TOKENIZER_H_
