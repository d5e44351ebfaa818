#include "datasets/tokenizers/save_tokenizer.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "datasets/tokenizers/read_file.h"

namespace tandem {
namespace {

// All that OpenTokenizer looks for.
constexpr const char* kNames[] = {"tokenizer.txt", "tokenizer.json",
                                  "vocab.json", "merges.txt",
                                  "tokenizer.model"};

struct Named {
  std::string name;
  std::string contents;
};

absl::StatusOr<std::vector<Named>> FilesOf(const std::string& tokenizer) {
  std::vector<Named> files;
  if (tokenizer == "bytes") {
    files.push_back({"tokenizer.txt", "bytes\n"});
  } else if (IsRegularFile(tokenizer)) {
    TANDEM_ASSIGN_OR_RETURN(std::string contents, ReadFile(tokenizer));
    files.push_back({absl::EndsWith(tokenizer, ".json") ? "tokenizer.json"
                                                        : "tokenizer.model",
                     std::move(contents)});
  } else {
    for (const char* const name : kNames) {
      const std::string path = absl::StrCat(tokenizer, "/", name);
      if (!IsRegularFile(path)) continue;
      TANDEM_ASSIGN_OR_RETURN(std::string contents, ReadFile(path));
      files.push_back({name, std::move(contents)});
    }
  }
  return files;
}

}  // namespace

absl::Status SaveTokenizer(const std::string& name_or_path,
                           const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Named> files,
                          FilesOf(name_or_path));
  for (const char* const name : kNames) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (!IsRegularFile(path)) continue;
    TANDEM_ASSIGN_OR_RETURN(const std::string there, ReadFile(path));
    bool same = false;
    for (const Named& file : files) {
      same |= file.name == name && file.contents == there;
    }
    if (same) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " has another tokenizer, ", path,
                     ": remove it, or give another folder"));
  }
  for (const Named& file : files) {
    TANDEM_RETURN_IF_ERROR(WriteFileAtomically(
        absl::StrCat(folder, "/", file.name), file.contents));
  }
  return absl::OkStatus();
}

}  // namespace tandem
