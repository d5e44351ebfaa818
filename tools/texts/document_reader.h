// Document reader: the texts of a file, part by part, and where a text can be
// cut in two.

#ifndef TANDEM_TOOLS_TEXTS_DOCUMENT_READER_H_
#define TANDEM_TOOLS_TEXTS_DOCUMENT_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/texts/text_files.h"

namespace tandem {

// Bytes of `text`, from `least` to `most`, that the second part may begin with:
// first those behind a line's end (LF, CR LF or CR) that are no white space,
// then others behind one, then line ends, then other white space, then the
// beginnings of any characters; of each kind in their order, and `count` of it
// at most. No part is empty, and none is cut within a character of UTF-8 or
// between CR and LF.
std::vector<size_t> CutPlaces(absl::string_view text, size_t least, size_t most,
                              size_t count);

// A document or a part of one, which may end anywhere, within a character too.
struct DocumentPiece {
  absl::string_view text;  // that of a last part may be empty
  bool first = true;
  bool last = true;
  bool behind_cut = false;  // ReadDocumentsOptions::cut_after
  int64_t bytes_read = 0;   // of the file, packed or not, with this piece
};

struct ReadDocumentsOptions {
  std::string column = "text";  // of JSON lines
  // A place in a text, in unpacked bytes from its beginning, soon behind which
  // it is cut in two, at a line's end if there is one in 64 KiB (CutPlaces);
  // -1: none.
  int64_t cut_after = -1;
};

// Calls `take` for each piece of each document of `file`, in order, until it
// returns an error, which is returned. A byte order mark in front, empty lines
// of JSON lines and empty texts are no documents. A line of JSON is one piece,
// and in memory whole; of a text two MiB are. InvalidArgument for a file that
// is no text (CheckIsText), and, with the line, for one of more than 256 MiB
// and one that is no JSON object with a string in the column; else the errors
// of TextStream.
absl::Status ReadDocuments(
    const TextFile& file, const ReadDocumentsOptions& options,
    const std::function<absl::Status(const DocumentPiece&)>& take);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXTS_DOCUMENT_READER_H_
