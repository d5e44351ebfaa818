// Text files: which ones an --input means.

#ifndef TANDEM_TOOLS_TEXTS_TEXT_FILES_H_
#define TANDEM_TOOLS_TEXTS_TEXT_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

struct TextFile {
  std::string path;
  int64_t bytes = 0;
  bool json_lines = false;  // else one text
};

// The file `input`, whatever its name, or the .txt, .md and .jsonl files of the
// folder `input` and of those within it, by name. NotFound where there is
// nothing, InvalidArgument for a folder without such files, else the errors of
// the file system.
absl::StatusOr<std::vector<TextFile>> FindTextFiles(const std::string& input);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXTS_TEXT_FILES_H_
