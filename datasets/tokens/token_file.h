// Token file: a text as token numbers, one after the other, on disk.

#ifndef TANDEM_DATASETS_TOKENS_TOKEN_FILE_H_
#define TANDEM_DATASETS_TOKENS_TOKEN_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/owned_fd.h"

namespace tandem {

// Bytes of a token by Megatron-LM's index of the file `path`, which is called
// .idx instead of .bin; 0 where there is none. InvalidArgument for numbers that
// are neither uint16 nor int32.
absl::StatusOr<int> TokenBytesByIndex(const std::string& path);

// Whether numbers of 2 bytes are halves of wider ones: of each pair the second
// is 0, or of no more than the few values that the upper half of a token's
// number has, and the first is not. Of fewer than 64 pairs nobody can tell: no.
bool AreHalves(absl::Span<const uint16_t> numbers);

// In tandem's own format (docs/large_models.md, token_writer.h) or one of those
// that others write, all little-endian:
//
// - nanoGPT's: numbers and nothing else, of 2 bytes (GPT-2's, unless told
//   otherwise) or of 4; Megatron-LM's .bin, whose .idx beside it says which;
// - llm.c's: 256 int32, of which the first three are 20240520, 1 and the number
//   of tokens, then uint16 numbers of GPT-2's vocabulary; or 20240801, 7 and
//   their number, then uint32 numbers of Llama 3's.
//
// Only what is asked for is read, whatever the file's size. Thread-safe. A file
// that becomes shorter while it is read is an error.
class TokenFile {
 public:
  // `token_bytes`: of each number where the file does not say it, 2 or 4; 0: as
  // an .idx says, else 2, unless they look like halves of wider ones
  // (AreHalves), which is an InvalidArgument error.
  //
  // NotFound and others of the file system; InvalidArgument for what is no
  // regular file; DataLoss, with what was found and expected, for a header that
  // does not fit the file and for half a token.
  static absl::StatusOr<TokenFile> Open(const std::string& path,
                                        int token_bytes = 0);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // tokens
  // "tandem's", "llm.c's", or "without a header".
  const char* format() const { return format_; }
  int token_bytes() const { return token_bytes_; }
  // The vocabulary whose numbers are to be expected: as the file says, else
  // 50257 or 128256.
  int64_t usual_vocabulary() const;
  // Whether the file says it, and end_of_text() as well: it is in tandem's own
  // format.
  bool says_vocabulary() const { return vocabulary_ > 0; }
  // The token that ends each document; nothing: none does, or it is not said.
  std::optional<uint32_t> end_of_text() const { return end_of_text_; }
  // How many documents the file tells apart; 0 where its format has none.
  int64_t documents() const { return documents_; }

  // Tokens `first` to first + tokens.size() - 1. Requires that there are.
  // DataLoss for a number that is not below `vocabulary`, with its place.
  absl::Status Read(int64_t first, int64_t vocabulary,
                    absl::Span<int64_t> tokens) const;

  // The places of the first tokens of documents `first` and on. Requires that
  // there are as many. DataLoss for a place beyond the tokens or before that of
  // an earlier document.
  absl::Status ReadDocuments(int64_t first, absl::Span<int64_t> begins) const;

  // What tells it from other files of tokens: a checksum of their number and of
  // some at the beginning, in the middle and at the end.
  absl::StatusOr<uint32_t> Digest() const;

 private:
  TokenFile() = default;
  absl::Status ReadHeader(int64_t bytes, int token_bytes);
  absl::Status ReadOwnHeader(int64_t bytes);
  absl::Status ReadWithoutHeader(int64_t bytes, int token_bytes);
  absl::Status CheckWidth() const;
  absl::Status ReadBytes(int64_t offset, void* to, int64_t size) const;

  std::string path_;
  OwnedFd descriptor_;
  const char* format_ = "without a header";
  int64_t begin_ = 0;  // bytes before the first token
  int token_bytes_ = 2;
  int64_t size_ = 0;
  int64_t vocabulary_ = 0;  // 0: the file does not say
  std::optional<uint32_t> end_of_text_;
  int64_t documents_ = 0;
  int64_t documents_begin_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENS_TOKEN_FILE_H_
