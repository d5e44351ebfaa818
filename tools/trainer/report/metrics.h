// Machine-readable results: one JSON object a line.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_METRICS_H_
#define TANDEM_TOOLS_TRAINER_REPORT_METRICS_H_

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Writes events to a file, each line flushed when it is complete, so that a
// reader can follow. Not thread-safe.
class MetricsFile {
 public:
  // Replaces what the file at `path` holds, or writes behind it; a device or a
  // pipe is written to as it is. An empty path gives a file that swallows
  // everything.
  static absl::StatusOr<MetricsFile> Open(const std::string& path,
                                          bool append = false);

  // A number that is not finite becomes null: JSON has no other word for it.
  absl::Status Write(const nlohmann::ordered_json& event);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  explicit MetricsFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_METRICS_H_
