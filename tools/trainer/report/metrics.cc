#include "tools/trainer/report/metrics.h"

#include <cerrno>
#include <cstring>
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

absl::StatusOr<std::FILE*> OpenForWriting(const std::string& path,
                                          bool append) {
  TANDEM_ASSIGN_OR_RETURN(const FileTarget target, ResolveFileTarget(path));
  if (!target.in_place) {
    return std::fopen(target.path.c_str(), append ? "ae" : "we");
  }
  TANDEM_ASSIGN_OR_RETURN(const int descriptor, OpenInPlace(target));
  return fdopen(descriptor, "w");
}

}  // namespace

absl::StatusOr<MetricsFile> MetricsFile::Open(const std::string& path,
                                              bool append) {
  MetricsFile metrics(path);
  if (path.empty()) return metrics;
  const absl::StatusOr<std::FILE*> file = OpenForWriting(path, append);
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
  const std::string line = event.dump() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0) {
    return absl::UnavailableError(FileError(path_, "write"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
