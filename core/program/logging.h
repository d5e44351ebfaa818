// Logging of a program, by glog. For programs only: a library never calls it.
//
// Every line names its rank, or that it is a launcher's:
//   I1121 12:10:48.123456 rank 3 thread 4711 train.cc:12] message
// LibTorch's CHECK and LOG are glog's too, as far as its headers hold them
// (C10_USE_GLOG).

#ifndef TANDEM_CORE_PROGRAM_LOGGING_H_
#define TANDEM_CORE_PROGRAM_LOGGING_H_

#include <glog/logging.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// In the place of a rank: the lines are of a process that starts ranks.
constexpr int kLauncherLogs = -1;

struct LoggingOptions {
  int rank = 0;
  // Where log files go: one a rank, LogFilePath(). It is made when missing; an
  // existing file is appended to, so that a restarted rank loses nothing; each
  // line is written at once. When a line cannot be written (a full disk) stderr
  // is told, once, and the file ends there: the program goes on. Empty: no
  // files.
  std::string log_dir;
  // The least severity that goes to stderr: google::INFO, WARNING, ERROR,
  // FATAL.
  int stderr_threshold = google::WARNING;
};

// "DIR/train.rank-3.log" for ("DIR", "train", 3).
std::string LogFilePath(absl::string_view log_dir, absl::string_view program,
                        int rank);

// Starts glog for this process. `program` is argv[0] or a name; its last path
// component names the files. FailedPrecondition when glog has been started;
// another error, with nothing started, when the directory or the file cannot
// be made or written.
//
// Not thread-safe: call it from main, before other threads log.
absl::Status InitLogging(absl::string_view program,
                         const LoggingOptions& options);

// Writes out and closes the files. Logging falls back to stderr.
void ShutdownLogging();

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_LOGGING_H_
