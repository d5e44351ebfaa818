// Tokenizer files in a folder: their names, small files read whole, and copies
// kept beside what a tokenizer made.

#ifndef TANDEM_DATASETS_TOKENIZERS_TOKENIZER_FILES_H_
#define TANDEM_DATASETS_TOKENIZERS_TOKENIZER_FILES_H_

#include <string>

#include "absl/status/status.h"
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

// Puts the files of the tokenizer that OpenTokenizer takes by `name_or_path`
// into `folder`, which is there, so that OpenTokenizer(folder) opens the same
// one: "bytes" as tokenizer.txt, which has that word. Of Hugging Face's files
// those that their own libraries read come along (tokenizer_config.json,
// special_tokens_map.json, chat_template.jinja). CheckNoOtherTokenizer's error;
// else the errors of files.
absl::Status SaveTokenizer(const std::string& name_or_path,
                           const std::string& folder);

// FailedPrecondition where `folder`, which may be missing, has a tokenizer that
// is another one; else the errors of files.
absl::Status CheckNoOtherTokenizer(const std::string& name_or_path,
                                   const std::string& folder);

// Whether the file `path` is part of a tokenizer that lies in its folder, and
// looks like a text by its name: tokenizer.txt as above, GPT-2's merges.txt.
bool IsTokenizerFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_TOKENIZER_FILES_H_
