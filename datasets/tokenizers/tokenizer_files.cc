#include "datasets/tokenizers/tokenizer_files.h"

#include <filesystem>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "datasets/tokenizers/read_file.h"

namespace tandem {

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
