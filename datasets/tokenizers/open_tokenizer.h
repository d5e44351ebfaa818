// Tokenizers by name, file or folder.

#ifndef TANDEM_DATASETS_TOKENIZERS_OPEN_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_OPEN_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// "bytes" (bytes_tokenizer.h), or a path, as the process sees it.
// InvalidArgument, with what there is, for anything else.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(
    const std::string& name_or_path);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_OPEN_TOKENIZER_H_
