#include "tools/texts/text_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

absl::Status CannotRead(const std::string& path, const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", path));
}

bool IsText(const fs::path& path) {
  const fs::path kind = path.extension();
  return kind == ".txt" || kind == ".md" || kind == ".jsonl";
}

TextFile Describe(const fs::path& path, std::error_code* error) {
  return {path.string(), static_cast<int64_t>(fs::file_size(path, *error)),
          path.extension() == ".jsonl"};
}

}  // namespace

absl::StatusOr<std::vector<TextFile>> FindTextFiles(const std::string& input) {
  std::error_code error;
  const fs::file_status status = fs::status(input, error);
  if (!fs::exists(status)) {
    return absl::NotFoundError(
        absl::StrCat("there is no file or folder '", input, "' to read"));
  }
  std::vector<TextFile> files;
  if (fs::is_regular_file(status)) files.push_back(Describe(input, &error));
  if (fs::is_directory(status)) {
    fs::recursive_directory_iterator entry(input, error);
    for (; !error && entry != fs::recursive_directory_iterator();
         entry.increment(error)) {
      if (!IsText(entry->path()) || !entry->is_regular_file(error)) continue;
      files.push_back(Describe(entry->path(), &error));
      if (error) break;
    }
  }
  if (error) return CannotRead(input, error);
  if (files.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        input, " is no file, and no folder of .txt, .md or .jsonl files"));
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

}  // namespace tandem
