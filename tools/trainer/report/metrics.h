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
  // A new file at `path`, or behind what one there holds. A file of another job
  // is not lost: it is called PATH.1, PATH.2, ... from then on. A device or a
  // pipe is written to as it is. An empty path gives a file that swallows
  // everything.
  static absl::StatusOr<MetricsFile> Open(const std::string& path,
                                          bool append = false);

  // What an earlier job's file is called now; empty: there was none.
  const std::string& earlier() const { return earlier_; }

  // A number that is not finite becomes null: JSON has no other word for it.
  absl::Status Write(const nlohmann::ordered_json& event);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  explicit MetricsFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::string earlier_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_METRICS_H_
