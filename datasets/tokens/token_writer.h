// Token writer: a token file in tandem's own format, document by document.

#ifndef TANDEM_DATASETS_TOKENS_TOKEN_WRITER_H_
#define TANDEM_DATASETS_TOKENS_TOKEN_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/files/atomic_file.h"
#include "datasets/tokens/token_format.h"

namespace tandem {

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
