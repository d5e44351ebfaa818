// Document reader: the texts of a file, piece by piece.

#ifndef TANDEM_TOOLS_TEXTS_DOCUMENT_READER_H_
#define TANDEM_TOOLS_TEXTS_DOCUMENT_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/texts/text_files.h"

namespace tandem {

// A document or a part of one.
struct DocumentPiece {
  absl::string_view text;
  bool first = true;
  bool last = true;
  int64_t bytes_read = 0;  // of the file, with this piece
};

struct ReadDocumentsOptions {
  std::string column = "text";  // of JSON lines
  // A text longer than this is handed on in pieces of about as much, each but
  // the last cut after a line's end that stands between two characters that are
  // no white space: tokens do not reach over one.
  size_t piece_bytes = size_t{8} << 20;
  // A place in a text, in bytes from its beginning, after which a piece ends as
  // soon as it can; -1: none.
  int64_t cut_after = -1;
};

// Calls `take` for each piece of each document of `file`, in order, until it
// returns an error, which is returned. Empty lines of JSON lines and empty
// texts are no documents. A text without lines' ends is kept in memory whole, a
// line of JSON too. InvalidArgument, with the line, for one that is no JSON
// object with a string in the column; else the errors of the file system.
absl::Status ReadDocuments(
    const TextFile& file, const ReadDocumentsOptions& options,
    const std::function<absl::Status(const DocumentPiece&)>& take);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXTS_DOCUMENT_READER_H_
