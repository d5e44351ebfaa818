#include "tools/trainer/job/save_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

absl::Status FolderError(const std::string& folder, const char* what,
                         const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("--save_dir=", folder, ": cannot ", what, ": ", why));
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
  return absl::OkStatus();
}

}  // namespace tandem
