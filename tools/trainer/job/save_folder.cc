#include "tools/trainer/job/save_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/files/temporary_file.h"

namespace tandem {
namespace {

constexpr char kLatest[] = "latest.safetensors";
constexpr char kPrefix[] = "step-";
constexpr char kSuffix[] = ".safetensors";

absl::Status FolderError(const std::string& folder, const char* what,
                         const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("--save_dir=", folder, ": cannot ", what, ": ", why));
}

// A link or a file is replaced by the next link.
absl::Status CheckLatest(const std::string& folder) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(
      absl::StrCat(folder, "/", kLatest), error);
  if (status.type() == std::filesystem::file_type::not_found ||
      status.type() == std::filesystem::file_type::symlink ||
      status.type() == std::filesystem::file_type::regular) {
    return absl::OkStatus();
  }
  return FolderError(folder, "make latest.safetensors a link",
                     "it is there, and neither a link nor a file; remove it, "
                     "or give another folder");
}

}  // namespace

absl::Status PrepareSaveFolder(const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FolderError(folder, "make the folder", error.message());
  std::string probe = absl::StrCat(folder, "/.probe.XXXXXX");
  const int file = mkstemp(&probe[0]);
  if (file < 0) {
    return FolderError(folder, "make a file in it", std::strerror(errno));
  }
  close(file);
  unlink(probe.c_str());
  RemoveAbandonedFiles(folder, [](absl::string_view name) {
    return absl::StartsWith(name, kPrefix) && absl::EndsWith(name, kSuffix);
  });
  return CheckLatest(folder);
}

std::string CheckpointName(int64_t step) {
  return absl::StrFormat("%s%09d%s", kPrefix, step, kSuffix);
}

absl::Status PointLatestAt(const std::string& folder, const std::string& name) {
  const std::string latest = absl::StrCat(folder, "/", kLatest);
  const std::string beside = absl::StrCat(latest, ".", getpid());
  unlink(beside.c_str());
  if (symlink(name.c_str(), beside.c_str()) == 0 &&
      rename(beside.c_str(), latest.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  unlink(beside.c_str());
  return absl::UnavailableError(absl::StrCat(latest, ": cannot point at ", name,
                                             ": ", std::strerror(error)));
}

bool HasCheckpoint(const std::string& folder) {
  std::error_code error;
  return !folder.empty() &&
         std::filesystem::exists(absl::StrCat(folder, "/", kLatest), error);
}

std::string CheckpointFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  return absl::StrCat(path, "/", kLatest);
}

}  // namespace tandem
