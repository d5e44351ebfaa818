// Token shards: several token files that are one set of tokens.

#ifndef TANDEM_DATASETS_TOKENS_TOKEN_SHARDS_H_
#define TANDEM_DATASETS_TOKENS_TOKEN_SHARDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "datasets/tokens/token_file.h"

namespace tandem {

// The token files of `set`, "train" or "val", in `folder`: SET.bin, or its
// shards, called SET_*.bin or *_SET_*.bin (fineweb_train_000001.bin, as llm.c's
// and modded-nanogpt's scripts name them), sorted by name. One at least; where
// there is neither, SET.bin is what cannot be opened.
//
// InvalidArgument, with two names, for SET.bin beside shards, and for shards of
// different formats, vocabularies or ends of texts; else, with the path,
// TokenFile::Open's errors.
absl::StatusOr<std::vector<TokenFile>> OpenTokenShards(
    const std::string& folder, absl::string_view set, int token_bytes);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENS_TOKEN_SHARDS_H_
