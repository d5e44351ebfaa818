#include "core/program/logging.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iomanip>
#include <ostream>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/program/exit_code.h"

namespace tandem {
namespace {

// glog keeps pointers to both for the life of the process.
std::string* ProgramName() {
  static auto* const name = new std::string;
  return name;
}
int rank_in_prefix = 0;

void WritePrefix(std::ostream& out, const google::LogMessageInfo& line,
                 void* rank) {
  const google::LogMessageTime& t = line.time;
  const int number = *static_cast<const int*>(rank);
  out << line.severity[0] << std::setw(2) << 1 + t.month() << std::setw(2)
      << t.day() << ' ' << std::setw(2) << t.hour() << ':' << std::setw(2)
      << t.min() << ':' << std::setw(2) << t.sec() << '.' << std::setw(6)
      << t.usec()
      << (number == kLauncherLogs ? " launcher"
                                  : absl::StrCat(" rank ", number))
      << " thread " << line.thread_id << ' ' << line.filename << ':'
      << line.line_number << ']';
}

std::string BaseName(absl::string_view path) {
  return std::filesystem::path(std::string(path)).filename().string();
}

// A rank's file. glog's own says nothing when a write fails.
class LogFile : public google::base::Logger {
 public:
  LogFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~LogFile() override { close(fd_); }

  // glog's lock is held. What cannot be written costs the file, not the job.
  void Write(bool /*force_flush*/, time_t /*timestamp*/, const char* message,
             size_t size) override {
    while (size > 0 && !failed_) {
      const ssize_t wrote = write(fd_, message, size);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) {
        failed_ = true;
        std::fprintf(
            stderr, "%s: cannot write %s: %s; nothing more is logged there\n",
            ProgramName()->c_str(), path_.c_str(), std::strerror(errno));
        return;
      }
      message += wrote;
      size -= static_cast<size_t>(wrote);
      written_ += static_cast<uint32_t>(wrote);
    }
  }
  void Flush() override {}  // nothing is kept back
  google::uint32 LogSize() override { return written_; }

 private:
  const int fd_;
  const std::string path_;
  bool failed_ = false;
  uint32_t written_ = 0;
};

absl::StatusOr<int> OpenLogFile(const std::string& directory,
                                const std::string& file) {
  const std::string name = absl::StrCat("the log folder ", directory);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return RefusedIfMendable(absl::ErrnoToStatus(
        error.value(), absl::StrCat(name, ": cannot make it")));
  }
  const int fd =
      open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return RefusedIfMendable(absl::ErrnoToStatus(
        errno, absl::StrCat(name, ": cannot write ", file)));
  }
  return fd;
}

// Lines of every severity go to INFO's logger, so one file is enough.
void SetDestinations() {
  for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
    google::SetLogSymlink(severity, "");
  }
}

}  // namespace

std::string LogFilePath(absl::string_view log_dir, absl::string_view program,
                        int rank) {
  return absl::StrCat(log_dir, "/", BaseName(program), ".rank-", rank, ".log");
}

absl::Status InitLogging(absl::string_view program,
                         const LoggingOptions& options) {
  if (google::IsGoogleLoggingInitialized()) {
    return absl::FailedPreconditionError(
        "logging has been started: a process calls InitLogging once");
  }
  const std::string file = LogFilePath(options.log_dir, program, options.rank);
  int fd = -1;
  if (!options.log_dir.empty()) {
    TANDEM_ASSIGN_OR_RETURN(fd, OpenLogFile(options.log_dir, file));
  }
  *ProgramName() = BaseName(program);
  rank_in_prefix = options.rank;
  FLAGS_logtostderr = false;
  FLAGS_stderrthreshold = options.stderr_threshold;
  SetDestinations();
  if (fd >= 0) {
    google::base::SetLogger(google::INFO, new LogFile(fd, file));  // glog's now
  }
  google::InitGoogleLogging(ProgramName()->c_str(), &WritePrefix,
                            &rank_in_prefix);
  return absl::OkStatus();
}

void ShutdownLogging() {
  if (google::IsGoogleLoggingInitialized()) google::ShutdownGoogleLogging();
}

}  // namespace tandem
