#include "datasets/tokenizers/tokenizer_files.h"

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "core/files/regular_file.h"

namespace tandem {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  return ReadShortFile(path, kMostBytes);
}

bool IsRegularFile(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string FolderThatExplains(const std::string& path) {
  const std::filesystem::path file(path);
  if (!absl::c_linear_search(kTokenizerFiles, file.filename().string())) {
    return "";
  }
  const std::string folder = file.parent_path().string();
  return folder.empty() ? "." : folder;
}

bool NamesBytes(const std::string& path) {
  const auto name = ReadFile(path);
  return name.ok() && absl::StripAsciiWhitespace(*name) == "bytes";
}

}  // namespace tandem
