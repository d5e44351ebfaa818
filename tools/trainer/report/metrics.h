// Machine-readable results: one JSON object a line.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_METRICS_H_
#define TANDEM_TOOLS_TRAINER_REPORT_METRICS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/owned_fd.h"
#include "core/files/file_target.h"

namespace tandem {

// Writes events to a file, each line at once, so that a reader can follow. Not
// thread-safe.
class MetricsFile {
 public:
  // A new file at `path`, or behind what one there holds. A device or a pipe is
  // written to as it is. An empty path gives a file that swallows everything.
  static absl::StatusOr<MetricsFile> Open(const std::string& path);

  // What is there is another job's, and is called PATH.1, PATH.2, ... from then
  // on: events go to a new file. Its name now; empty: there was none.
  absl::StatusOr<std::string> MoveEarlier();

  // The path that was given; empty: it swallows.
  const std::string& path() const { return path_; }

  // A number that is not finite becomes null: JSON has no other word for it. Of
  // an event that cannot be written, on a full disk say, nothing stays, or what
  // does is a line of its own: a later event is whole.
  absl::Status Write(const nlohmann::ordered_json& event);

 private:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}

  bool TakesBack(int64_t size) const;

  std::string path_;  // as it was given
  FileTarget target_;
  OwnedFd file_;          // none: swallows
  bool is_torn_ = false;  // its last line has no end
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_METRICS_H_
