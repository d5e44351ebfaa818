// Token writer: a token file in tandem's own format (docs/large_models.md),
// document by document.

#ifndef TANDEM_DATASETS_TOKENS_TOKEN_WRITER_H_
#define TANDEM_DATASETS_TOKENS_TOKEN_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/files/atomic_file.h"

namespace tandem {

// What a token file begins with. The tokens follow, zeros up to a multiple of 8
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

// The file is there once Commit has returned OK, whole, and until then what was
// there before (core/files/atomic_file.h, whose errors these are). Of what was
// appended only each document's place is kept in memory. Not thread-safe.
class TokenWriter {
 public:
  // Tokens take 2 bytes each where those of `vocabulary` fit, else 4.
  static absl::StatusOr<TokenWriter> Create(
      const std::string& path, int64_t vocabulary,
      std::optional<uint32_t> end_of_text);

  // The next token is a document's first.
  void BeginDocument();
  // Requires that a document has begun and that all are below the vocabulary.
  absl::Status Append(absl::Span<const uint32_t> tokens);
  // To be called once, last.
  absl::Status Commit();

  int64_t tokens() const { return header_.tokens; }
  int64_t documents() const { return static_cast<int64_t>(begins_.size()); }

 private:
  TokenWriter(std::unique_ptr<AtomicFile> file, const TokenHeader& header);

  std::unique_ptr<AtomicFile> file_;
  TokenHeader header_;
  std::vector<uint64_t> begins_;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENS_TOKEN_WRITER_H_
