// Tandem's own format of token files: docs/token_files.md.

#ifndef TANDEM_DATASETS_TOKENS_TOKEN_FORMAT_H_
#define TANDEM_DATASETS_TOKENS_TOKEN_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// What such a file begins with. The tokens follow, zeros up to a multiple of 8
// bytes, and the place of each document's first token as uint64.
struct TokenHeader {
  static constexpr int64_t kBytes = 64;

  int token_bytes = 2;     // 2 or 4
  int64_t vocabulary = 0;  // each token is below it
  int64_t tokens = 0;
  int64_t documents = 0;
  // What stands after each document.
  std::optional<uint32_t> end_of_text;

  // Where the documents' places begin, and the file ends.
  int64_t documents_begin() const;
  int64_t file_bytes() const;
};

// kBytes of them.
std::string WriteTokenHeader(const TokenHeader& header);

// Whether a file of these first bytes is in this format.
bool IsTokenHeader(absl::string_view bytes);

// Reads the first kBytes of a file of `file_bytes`. DataLoss, with what was
// found and expected, for what does not fit the file or is of another version.
absl::StatusOr<TokenHeader> ReadTokenHeader(absl::string_view bytes,
                                            int64_t file_bytes);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENS_TOKEN_FORMAT_H_
