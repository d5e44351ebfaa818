// Tokenizers, kept beside what they made.

#ifndef TANDEM_DATASETS_TOKENIZERS_SAVE_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_SAVE_TOKENIZER_H_

#include <string>

#include "absl/status/status.h"

namespace tandem {

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

#endif  // TANDEM_DATASETS_TOKENIZERS_SAVE_TOKENIZER_H_
