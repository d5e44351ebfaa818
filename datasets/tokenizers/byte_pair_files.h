// Tokenizer files of GPT-2 (vocab.json and merges.txt) and of tiktoken (words
// of a vocabulary in Base64, each with its rank).

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_FILES_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_FILES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// vocab.json and merges.txt in one folder: words in GPT-2's alphabet with their
// numbers; merges, one a line, two words with a space between. Texts are cut as
// GPT-2's are, and
// <|endoftext|>, where the vocabulary has it, is special, as is the eos_token
// of a tokenizer_config.json beside them (end_of_text.h). InvalidArgument for
// anything else, with the file.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadGpt2Files(
    const std::string& vocabulary_path, const std::string& merges_path);

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

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_FILES_H_
