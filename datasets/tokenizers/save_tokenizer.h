// Tokenizers, kept beside what they made.

#ifndef TANDEM_DATASETS_TOKENIZERS_SAVE_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_SAVE_TOKENIZER_H_

#include <string>

#include "absl/status/status.h"

namespace tandem {

// Puts the files of the tokenizer that OpenTokenizer takes by `name_or_path`
// into `folder`, which is there, so that OpenTokenizer(folder) opens the same
// one: "bytes" as tokenizer.txt, which has that word. FailedPrecondition where
// the folder has a tokenizer that is another; else the errors of files.
absl::Status SaveTokenizer(const std::string& name_or_path,
                           const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_SAVE_TOKENIZER_H_
