#include "core/logging.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iomanip>
#include <ostream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/status_macros.h"

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
  out << line.severity[0] << std::setw(2) << 1 + t.month() << std::setw(2)
      << t.day() << ' ' << std::setw(2) << t.hour() << ':' << std::setw(2)
      << t.min() << ':' << std::setw(2) << t.sec() << '.' << std::setw(6)
      << t.usec() << " rank " << *static_cast<const int*>(rank) << " thread "
      << line.thread_id << ' ' << line.filename << ':' << line.line_number
      << ']';
}

std::string BaseName(absl::string_view path) {
  return std::filesystem::path(std::string(path)).filename().string();
}

// glog opens its files at the first message and can then only complain on
// stderr, so what can go wrong is tried here.
absl::Status MakeLogFile(const std::string& directory,
                         const std::string& file) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_dir=", directory,
                     ": cannot make this directory: ", error.message()));
  }
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("--log_dir=", directory, ": cannot write ", file));
  }
  close(fd);
  return absl::OkStatus();
}

void SetDestinations(const std::string& file) {
  // Lines of every severity go to INFO's file, so one file is enough.
  for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
    google::SetLogSymlink(severity, "");
  }
  google::SetLogDestination(google::INFO, file.c_str());
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
  std::string file;
  if (!options.log_dir.empty()) {
    file = LogFilePath(options.log_dir, program, options.rank);
    TANDEM_RETURN_IF_ERROR(MakeLogFile(options.log_dir, file));
  }
  *ProgramName() = BaseName(program);
  rank_in_prefix = options.rank;
  FLAGS_logtostderr = false;
  FLAGS_stderrthreshold = options.stderr_threshold;
  FLAGS_timestamp_in_logfile_name = false;
  FLAGS_logbuflevel = -1;  // a killed rank's last lines are the ones we need
  SetDestinations(file);
  google::InitGoogleLogging(ProgramName()->c_str(), &WritePrefix,
                            &rank_in_prefix);
  return absl::OkStatus();
}

void ShutdownLogging() {
  if (google::IsGoogleLoggingInitialized()) google::ShutdownGoogleLogging();
}

}  // namespace tandem
