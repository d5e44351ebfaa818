#include "datasets/tokenizers/open_tokenizer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "datasets/tokenizers/bytes_tokenizer.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(
    const std::string& name_or_path) {
  if (name_or_path == "bytes") return MakeBytesTokenizer();
  return absl::InvalidArgumentError(
      absl::StrCat("unknown tokenizer '", name_or_path, "'; there is bytes"));
}

}  // namespace tandem
