#include "datasets/tokenizers/tokenizer_files.h"

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
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

namespace {

// Files that say nothing which OpenTokenizer looks for.
constexpr const char* kForOthers[] = {"special_tokens_map.json",
                                      "chat_template.jinja"};

struct Named {
  std::string name;
  std::string contents;
};

absl::Status AddFile(const std::string& path, const std::string& name,
                     std::vector<Named>* files) {
  if (!IsRegularFile(path)) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(std::string contents, ReadFile(path));
  files->push_back({name, std::move(contents)});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Named>> FilesToSave(const std::string& tokenizer) {
  std::vector<Named> files;
  if (tokenizer == "bytes") {
    files.push_back({"tokenizer.txt", "bytes\n"});
    return files;
  }
  std::string folder = tokenizer;
  if (IsRegularFile(tokenizer)) {
    TANDEM_RETURN_IF_ERROR(AddFile(tokenizer,
                                   absl::EndsWith(tokenizer, ".json")
                                       ? "tokenizer.json"
                                       : "tokenizer.model",
                                   &files));
    folder = FolderThatExplains(tokenizer);
    if (folder.empty()) return files;
  } else {
    for (const char* const name : kTokenizerFiles) {
      TANDEM_RETURN_IF_ERROR(
          AddFile(absl::StrCat(tokenizer, "/", name), name, &files));
    }
  }
  TANDEM_RETURN_IF_ERROR(AddFile(absl::StrCat(folder, "/", kTokenizerConfig),
                                 kTokenizerConfig, &files));
  for (const char* const name : kForOthers) {
    TANDEM_RETURN_IF_ERROR(
        AddFile(absl::StrCat(folder, "/", name), name, &files));
  }
  return files;
}

// With what says which of its tokens ends a text.
std::vector<std::string> DecidingNames() {
  std::vector<std::string> names(std::begin(kTokenizerFiles),
                                 std::end(kTokenizerFiles));
  names.emplace_back(kTokenizerConfig);
  return names;
}

absl::Status CheckNoOther(const std::vector<Named>& files,
                          const std::string& folder) {
  for (const std::string& name : DecidingNames()) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (!IsRegularFile(path)) continue;
    TANDEM_ASSIGN_OR_RETURN(const std::string there, ReadFile(path));
    const bool is_same = absl::c_any_of(files, [&](const Named& file) {
      return file.name == name && file.contents == there;
    });
    if (is_same) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " has another tokenizer, ", path,
                     ": remove it, or give another folder"));
  }
  return absl::OkStatus();
}

bool HasBeside(const std::filesystem::path& file, const char* name) {
  return IsRegularFile((file.parent_path() / name).string());
}

}  // namespace

absl::Status CheckNoOtherTokenizer(const std::string& name_or_path,
                                   const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Named> files,
                          FilesToSave(name_or_path));
  return CheckNoOther(files, folder);
}

absl::Status SaveTokenizer(const std::string& name_or_path,
                           const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Named> files,
                          FilesToSave(name_or_path));
  TANDEM_RETURN_IF_ERROR(CheckNoOther(files, folder));
  for (const Named& file : files) {
    const std::string path = absl::StrCat(folder, "/", file.name);
    const auto there = ReadFile(path);
    if (there.ok() && *there == file.contents) continue;
    TANDEM_RETURN_IF_ERROR(WriteFileAtomically(path, file.contents));
  }
  return absl::OkStatus();
}

bool IsTokenizerFile(const std::string& path) {
  const std::filesystem::path file(path);
  if (file.filename() == "merges.txt") {
    return HasBeside(file, "vocab.json") || HasBeside(file, "tokenizer.json");
  }
  return file.filename() == "tokenizer.txt" && NamesBytes(path);
}

}  // namespace tandem
