// Files of a tokenizer in a folder: their names, and small files read whole.

#ifndef TANDEM_DATASETS_TOKENIZERS_TOKENIZER_FILES_H_
#define TANDEM_DATASETS_TOKENIZERS_TOKENIZER_FILES_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// The errors of the file system, with the path; InvalidArgument for what is no
// regular file or has more than 256 MiB, which no tokenizer has.
absl::StatusOr<std::string> ReadFile(const std::string& path);

bool IsRegularFile(const std::string& path);

// All that OpenTokenizer looks for: tokenizer.txt has the name of one that
// needs no file.
inline constexpr const char* kTokenizerFiles[] = {
    "tokenizer.txt", "tokenizer.json", "vocab.json", "merges.txt",
    "tokenizer.model"};

// What Hugging Face's libraries say of it besides.
inline constexpr char kTokenizerConfig[] = "tokenizer_config.json";

// Where the file `path` of a tokenizer has such a companion: its folder; ""
// where it is called otherwise than in a folder that is one tokenizer's.
std::string FolderThatExplains(const std::string& path);

// Whether the file `path`, a tokenizer.txt, has the word "bytes".
bool NamesBytes(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_TOKENIZER_FILES_H_
