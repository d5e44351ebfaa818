// Document boundaries of a token file: where in a stretch of it new documents
// begin.

#ifndef TANDEM_DATASETS_TOKENS_DOCUMENTS_H_
#define TANDEM_DATASETS_TOKENS_DOCUMENTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datasets/tokens/token_file.h"

namespace tandem {

// How a file tells its documents apart: by its own list of them, or, where its
// format has none, by the token that ends each.
struct DocumentEnds {
  std::optional<int64_t> end_of_text;
};

// InvalidArgument, which says what to give, for a file without a list where
// there is no end_of_text, for one with a list where there is, and for a token
// that is not below `vocabulary`.
absl::Status CheckDocumentEnds(const TokenFile& file, const DocumentEnds& ends,
                               int64_t vocabulary);

// The places, counted from token `first`, of 1 to `count` at which a document
// begins, in their order: a token behind an end_of_text begins one, as in
// Megatron-LM, where the end of a text belongs to it. Requires
// CheckDocumentEnds, and that there are `count` tokens from `first` on. The
// file's errors.
absl::StatusOr<std::vector<int64_t>> DocumentsWithin(const TokenFile& file,
                                                     const DocumentEnds& ends,
                                                     int64_t vocabulary,
                                                     int64_t first,
                                                     int64_t count);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENS_DOCUMENTS_H_
