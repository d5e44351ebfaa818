// tiktoken's rank files: words of a vocabulary in Base64, each with its rank.

#ifndef TANDEM_DATASETS_TOKENIZERS_TIKTOKEN_RANKS_H_
#define TANDEM_DATASETS_TOKENIZERS_TIKTOKEN_RANKS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// What a rank file does not say: how texts are cut, and which tokens are
// special. It is known by the number of ranks: 50256 are GPT-2's
// (r50k_base.tiktoken), 100256 GPT-4's (cl100k_base.tiktoken), 128000 Llama
// 3's (tokenizer.model).
//
// InvalidArgument, with the line, for a file that is none; with the number, for
// a vocabulary that is not known.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTiktokenRanks(
    const std::string& path);

// The same for ranks of any number that are to be cut by `pattern`, without
// special tokens.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTiktokenRanks(
    const std::string& path, const std::string& pattern);

// How GPT-4's and Llama 3's texts are cut.
extern const char kGpt4Pattern[];
extern const char kLlama3Pattern[];

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_TIKTOKEN_RANKS_H_
