#include "tools/trainer/metrics.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

std::string FileError(const std::string& path, const char* what) {
  return absl::StrCat("--metrics_file=", path, ": cannot ", what, ": ",
                      std::strerror(errno));
}

}  // namespace

absl::StatusOr<MetricsFile> MetricsFile::Open(const std::string& path) {
  MetricsFile metrics(path);
  if (path.empty()) return metrics;
  metrics.file_.reset(std::fopen(path.c_str(), "w"));
  if (metrics.file_ == nullptr) {
    return absl::FailedPreconditionError(FileError(path, "open for writing"));
  }
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
