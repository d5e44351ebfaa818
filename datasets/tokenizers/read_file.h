// Small files, read whole.

#ifndef TANDEM_DATASETS_TOKENIZERS_READ_FILE_H_
#define TANDEM_DATASETS_TOKENIZERS_READ_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// The errors of the file system, with the path; InvalidArgument for what is no
// regular file or has more than 256 MiB, which no tokenizer has.
absl::StatusOr<std::string> ReadFile(const std::string& path);

bool IsRegularFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_READ_FILE_H_
