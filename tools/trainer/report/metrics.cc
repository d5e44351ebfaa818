#include "tools/trainer/report/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/files/file_target.h"
#include "core/program/exit_code.h"

namespace tandem {
namespace {

// The error that errno tells of.
absl::Status FileError(const std::string& path, const char* what) {
  return RefusedIfMendable(absl::ErrnoToStatus(
      errno, absl::StrCat("--metrics_file=", path, ": cannot ", what)));
}

constexpr int kMostEarlier = 10000;

// Moves the file away, to the name that it gives; empty: there was none, or an
// empty one.
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
  return FileError(path, "keep what an earlier job wrote there");
}

// Opens the file for appending.
absl::StatusOr<OwnedFd> OpenForWriting(const FileTarget& target) {
  if (target.in_place) {
    TANDEM_ASSIGN_OR_RETURN(const int descriptor, OpenInPlace(target));
    return OwnedFd(descriptor);
  }
  return OwnedFd(open(target.path.c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
}

// Also where nobody can tell.
bool EndsWithALine(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return !file.seekg(-1, std::ios::end) || file.get() == '\n';
}

// The number of bytes that were written.
size_t WriteSome(int file, absl::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(file, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  return done;
}

}  // namespace

absl::StatusOr<MetricsFile> MetricsFile::Open(const std::string& path) {
  MetricsFile metrics(path);
  if (path.empty()) return metrics;
  const auto open_target = [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(metrics.target_, ResolveFileTarget(path));
    TANDEM_ASSIGN_OR_RETURN(metrics.file_, OpenForWriting(metrics.target_));
    return absl::OkStatus();
  };
  const absl::Status opened = open_target();
  if (!opened.ok()) {
    return RefusedIfMendable(absl::Status(
        opened.code(), absl::StrCat("--metrics_file: ", opened.message())));
  }
  if (!metrics.file_) return FileError(path, "open for writing");
  metrics.is_torn_ =
      !metrics.target_.in_place && !EndsWithALine(metrics.target_.path);
  return metrics;
}

absl::StatusOr<std::string> MetricsFile::MoveEarlier() {
  if (!file_ || target_.in_place) return "";
  TANDEM_ASSIGN_OR_RETURN(std::string earlier, MoveAway(target_.path));
  if (earlier.empty()) return earlier;
  TANDEM_ASSIGN_OR_RETURN(file_, OpenForWriting(target_));
  if (!file_) return FileError(path_, "open for writing");
  is_torn_ = false;
  return earlier;
}

// A file that is only added to can be made as it was.
bool MetricsFile::TakesBack(int64_t size) const {
  return !target_.in_place && ftruncate(file_.get(), size) == 0;
}

absl::Status MetricsFile::Write(const nlohmann::ordered_json& event) {
  if (!file_) return absl::OkStatus();
  using Json = nlohmann::ordered_json;
  // Paths may be no UTF-8.
  const std::string line = absl::StrCat(
      is_torn_ ? "\n" : "",
      event.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
  struct stat before = {};
  const bool is_known = fstat(file_.get(), &before) == 0;
  const size_t wrote = WriteSome(file_.get(), line);
  if (wrote == line.size()) {
    is_torn_ = false;
    return absl::OkStatus();
  }
  const absl::Status error = FileError(path_, "write");
  // The next event would stand behind half of this one.
  if (wrote > 0 && !(is_known && TakesBack(before.st_size))) is_torn_ = true;
  return error;
}

}  // namespace tandem
