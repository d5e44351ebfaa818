// Text files: which ones an --input means.

#ifndef TANDEM_TOOLS_TEXTS_TEXT_FILES_H_
#define TANDEM_TOOLS_TEXTS_TEXT_FILES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/texts/text_stream.h"

namespace tandem {

// InvalidArgument, which says what the file `path` is and what to do, for one
// that begins as compressed files do (gzip, zstd, xz, bzip2, zip, LZ4, 7z), as
// Parquet, or in UTF-16, and for one with a byte 0 among these first ones: it
// would be trained on as it is.
absl::Status CheckIsText(const std::string& path, absl::string_view beginning);

struct TextFile {
  std::string path;
  int64_t bytes = 0;        // as it is, packed or not
  bool json_lines = false;  // else one text
  Packing packing = Packing::kNone;
};

struct TextFiles {
  std::vector<TextFile> files;  // by name
  // What a folder has besides, and nobody reads: of what kind (".gz"), and how
  // many.
  std::map<std::string, int64_t> left_out;
};

// The file `input`, whatever its name; or the .txt, .md and .jsonl files of the
// folder `input` and of those within it, but for what tokenizers lie there
// (IsTokenizerFile): what //tools:tokenize has written is no text. A file whose
// name ends with .gz or .zst behind that is unpacked as it is read. NotFound
// where there is nothing, InvalidArgument for a folder without such files and
// for one file of JSON that is called otherwise, else the errors of the file
// system, with the folder or file that could not be read.
absl::StatusOr<TextFiles> FindTextFiles(const std::string& input);

// "3 .gz, 1 .parquet", the most frequent kinds first; empty: nothing was.
std::string DescribeLeftOut(const TextFiles& found);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXTS_TEXT_FILES_H_
