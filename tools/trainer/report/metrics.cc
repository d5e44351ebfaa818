#include "tools/trainer/report/metrics.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/file_target.h"

namespace tandem {
namespace {

std::string FileError(const std::string& path, const char* what) {
  return absl::StrCat("--metrics_file=", path, ": cannot ", what, ": ",
                      std::strerror(errno));
}

constexpr int kMostEarlier = 10000;

// Its new name; empty: there is no file with anything in it.
absl::StatusOr<std::string> MoveAway(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) ||
      std::filesystem::file_size(path, error) == 0) {
    return "";
  }
  for (int i = 1; i < kMostEarlier; ++i) {
    const std::string name = absl::StrCat(path, ".", i);
    // Never replaces one that is there.
    if (renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(),
                  RENAME_NOREPLACE) == 0) {
      return name;
    }
    if (errno == EEXIST) continue;
    const bool unsupported = errno == EINVAL || errno == ENOSYS;
    if (unsupported && std::filesystem::exists(name, error)) continue;
    if (unsupported && std::rename(path.c_str(), name.c_str()) == 0) {
      return name;
    }
    break;
  }
  return absl::FailedPreconditionError(
      FileError(path, "keep what an earlier job wrote there"));
}

absl::StatusOr<std::FILE*> OpenForWriting(const std::string& path, bool append,
                                          std::string* earlier) {
  TANDEM_ASSIGN_OR_RETURN(const FileTarget target, ResolveFileTarget(path));
  if (!target.in_place) {
    if (!append) {
      TANDEM_ASSIGN_OR_RETURN(*earlier, MoveAway(target.path));
    }
    return std::fopen(target.path.c_str(), "ae");
  }
  TANDEM_ASSIGN_OR_RETURN(const int descriptor, OpenInPlace(target));
  return fdopen(descriptor, "w");
}

}  // namespace

absl::StatusOr<MetricsFile> MetricsFile::Open(const std::string& path,
                                              bool append) {
  MetricsFile metrics(path);
  if (path.empty()) return metrics;
  const absl::StatusOr<std::FILE*> file =
      OpenForWriting(path, append, &metrics.earlier_);
  if (!file.ok()) {
    return absl::Status(
        file.status().code(),
        absl::StrCat("--metrics_file: ", file.status().message()));
  }
  if (*file == nullptr) {
    return absl::FailedPreconditionError(FileError(path, "open for writing"));
  }
  metrics.file_.reset(*file);
  return metrics;
}

absl::Status MetricsFile::Write(const nlohmann::ordered_json& event) {
  if (file_ == nullptr) return absl::OkStatus();
  using Json = nlohmann::ordered_json;
  // Paths may be no UTF-8.
  const std::string line =
      event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0) {
    return absl::UnavailableError(FileError(path_, "write"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
