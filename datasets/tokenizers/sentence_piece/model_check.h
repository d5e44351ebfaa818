// Check of a sentencepiece model file before the library trusts it.

#ifndef TANDEM_DATASETS_TOKENIZERS_SENTENCE_PIECE_MODEL_CHECK_H_
#define TANDEM_DATASETS_TOKENIZERS_SENTENCE_PIECE_MODEL_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

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

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_SENTENCE_PIECE_MODEL_CHECK_H_
