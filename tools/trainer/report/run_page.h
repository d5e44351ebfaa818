// Run page: the HTML report of the job that is under way (--report).

#ifndef TANDEM_TOOLS_TRAINER_REPORT_RUN_PAGE_H_
#define TANDEM_TOOLS_TRAINER_REPORT_RUN_PAGE_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/report/run_log.h"

namespace tandem {

// Keeps events, thinned: a few megabytes at most, however many there are
// (tools/report/run_log.h). Not thread-safe.
class RunPage {
 public:
  // Keeps nothing.
  RunPage() = default;
  // Whether a file at `path` can be written is tried, and leaves nothing. An
  // empty path gives one that keeps nothing.
  static absl::StatusOr<RunPage> Open(const std::string& path);

  // What an earlier process of the job wrote to its metrics file. One that
  // cannot be read, or has nothing, is passed over.
  void NoteEarlier(const std::string& metrics_file);

  void Note(const nlohmann::ordered_json& event);

  const std::string& path() const { return path_; }

  // The page of all events so far.
  absl::Status Write() const;

 private:
  explicit RunPage(const std::string& path);

  std::string path_;
  std::unique_ptr<RunLogReader> reader_;  // null: there is no page
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_RUN_PAGE_H_
