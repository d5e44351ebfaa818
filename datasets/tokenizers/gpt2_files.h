// GPT-2's tokenizer files: vocab.json and merges.txt.

#ifndef TANDEM_DATASETS_TOKENIZERS_GPT2_FILES_H_
#define TANDEM_DATASETS_TOKENIZERS_GPT2_FILES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// Both in one folder: words in GPT-2's alphabet with their numbers; merges, one
// a line, two words with a space between. Texts are cut as GPT-2's are, and
// <|endoftext|>, where the vocabulary has it, is special, as is the eos_token
// of a tokenizer_config.json beside them (end_of_text.h). InvalidArgument for
// anything else, with the file.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadGpt2Files(
    const std::string& vocabulary_path, const std::string& merges_path);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_GPT2_FILES_H_
