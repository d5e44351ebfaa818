#include "datasets/tokens/token_shards.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool IsShard(absl::string_view name, absl::string_view set) {
  const std::string word = absl::StrCat(set, "_");
  return absl::EndsWith(name, ".bin") &&
         (absl::StartsWith(name, word) ||
          absl::StrContains(name, absl::StrCat("_", word)));
}

absl::StatusOr<std::vector<std::string>> FindShards(const std::string& folder,
                                                    absl::string_view set) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (IsShard(name, set)) names.push_back(std::move(name));
  }
  // What cannot be listed may have a SET.bin all the same.
  const bool may_be_read = error == std::errc::permission_denied ||
                           error == std::errc::no_such_file_or_directory ||
                           error == std::errc::not_a_directory;
  if (error && !may_be_read) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("cannot read ", folder));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Kind(const TokenFile& file) {
  return absl::StrCat(
      file.format(), ", ", file.token_bytes(), " bytes a token",
      file.says_vocabulary()
          ? absl::StrCat(", vocabulary ", file.usual_vocabulary())
          : "",
      file.end_of_text() ? absl::StrCat(", end of text ", *file.end_of_text())
                         : "");
}

absl::Status CheckSameKind(const std::vector<TokenFile>& files) {
  const std::string kind = Kind(files.front());
  for (const TokenFile& each : files) {
    if (Kind(each) == kind) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        files.front().path(), " is ", kind, ", but ", each.path(), " is ",
        Kind(each),
        ": expected shards of one format, written with one tokenizer"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TokenFile>> OpenTokenShards(
    const std::string& folder, absl::string_view set, int token_bytes) {
  const std::string whole = absl::StrCat(folder, "/", set, ".bin");
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> shards,
                          FindShards(folder, set));
  std::vector<TokenFile> files;
  if (shards.empty()) {
    absl::StatusOr<TokenFile> file = TokenFile::Open(whole, token_bytes);
    if (absl::IsNotFound(file.status())) {
      return absl::NotFoundError(
          absl::StrCat(file.status().message(),
                       "; bazel run //tools:tokenize makes it of a text"));
    }
    TANDEM_RETURN_IF_ERROR(file.status());
    files.push_back(*std::move(file));
    return files;
  }
  std::error_code ignored;
  if (fs::exists(whole, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, " has both ", set, ".bin and ", shards.front(),
        ": expected one file, or shards; remove what is not to be read"));
  }
  for (const std::string& name : shards) {
    absl::StatusOr<TokenFile> file =
        TokenFile::Open(absl::StrCat(folder, "/", name), token_bytes);
    if (absl::IsResourceExhausted(file.status())) {
      return absl::ResourceExhaustedError(absl::StrCat(
          file.status().message(), "; all ", shards.size(),
          " shards are open at a time: allow more files (ulimit -n)"));
    }
    TANDEM_RETURN_IF_ERROR(file.status());
    files.push_back(*std::move(file));
  }
  TANDEM_RETURN_IF_ERROR(CheckSameKind(files));
  return files;
}

}  // namespace tandem
