#include "core/flight/dump_file.h"

#include <errno.h>
#include <glog/logging.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/flight/recorder.h"

namespace tandem {
namespace {

struct Dumping {
  absl::Mutex mutex;
  std::optional<FlightJob> job ABSL_GUARDED_BY(mutex);
  bool has_failed ABSL_GUARDED_BY(mutex) = false;

  // Never destroyed: a thread may fail at the end of the process.
  static Dumping& OfProcess() {
    static Dumping* const dumping = new Dumping();
    return *dumping;
  }
};

namespace fs = std::filesystem;

// Removes the folders of this user's earlier jobs, whose names begin alike:
// nobody else does.
void RemoveOldNeighbours(const std::string& folder) {
  constexpr std::chrono::hours kOld(7 * 24);
  const fs::path mine(folder);
  const std::string name = mine.filename().string();
  const std::string kind = name.substr(0, name.rfind('-') + 1);
  if (kind.empty()) return;
  std::error_code error;
  for (fs::directory_iterator each(mine.parent_path(), error), end;
       !error && each != end; each.increment(error)) {
    const std::string path = each->path().string();
    struct stat found = {};
    const bool is_ours =
        absl::StartsWith(each->path().filename().string(), kind) &&
        lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
        found.st_uid == geteuid();
    const auto age = std::chrono::seconds(time(nullptr) - found.st_mtime);
    std::error_code ignored;
    if (is_ours && age > kOld) fs::remove_all(path, ignored);
  }
}

absl::Status MakePrivateFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) == 0) {
    RemoveOldNeighbours(folder);
    return absl::OkStatus();
  }
  struct stat found = {};
  if (errno == EEXIST && lstat(folder.c_str(), &found) == 0 &&
      S_ISDIR(found.st_mode) && found.st_uid == geteuid()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "folder ", folder,
      " cannot be made, or is not this user's own: ", strerror(errno)));
}

absl::Status MakeFolder(const FlightJob& job) {
  if (job.is_private) return MakePrivateFolder(job.folder);
  std::error_code error;
  fs::create_directories(job.folder, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "folder ", job.folder, " cannot be made: ", error.message()));
}

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

absl::StatusOr<std::string> Write(const FlightJob& job, FlightTrigger trigger,
                                  const std::string& reason) {
  FlightDump dump;
  dump.rank = job.rank;
  dump.world_size = job.world_size;
  dump.job = job.id;
  dump.host = HostName();
  dump.pid = getpid();
  dump.trigger = trigger;
  dump.reason = reason;
  dump.dumped_ns = absl::GetCurrentTimeNanos();
  if (!FlightRecorder::OfProcess().Read(&dump)) {
    return absl::UnavailableError(
        "the flight recorder's lock is held by a thread that does not go on");
  }
  TANDEM_RETURN_IF_ERROR(MakeFolder(job));
  const std::string path = FlightDumpPath(job.folder, job.rank);
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(path, EncodeFlightDump(dump)));
  return path;
}

void Log(FlightTrigger trigger, const absl::StatusOr<std::string>& written,
         const std::string& folder) {
  // Who fails by itself says what is wrong, and needs no look at its dump.
  const auto severity =
      trigger == FlightTrigger::kGaveUp ? google::INFO : google::ERROR;
  if (written.ok()) {
    LOG_AT_LEVEL(severity)
        << "what this rank was doing is in " << *written
        << "; which rank is at fault: bazel run //tools:diagnose -- " << folder;
  } else {
    LOG_AT_LEVEL(severity) << "what this rank was doing could not be written: "
                           << written.status().message();
  }
}

}  // namespace

void SetFlightJob(FlightJob job) {
  Dumping& dumping = Dumping::OfProcess();
  absl::MutexLock lock(&dumping.mutex);
  dumping.job = std::move(job);
  dumping.has_failed = false;
}

std::string FlightDumpPath(const std::string& folder, int rank) {
  return absl::StrCat(folder, "/rank_", rank, ".json");
}

absl::StatusOr<std::string> DumpFlight(FlightTrigger trigger,
                                       const std::string& reason) {
  Dumping& dumping = Dumping::OfProcess();
  absl::MutexLock lock(&dumping.mutex);
  if (!dumping.job.has_value()) {
    return absl::FailedPreconditionError(
        "this process was not told where to write flight dumps");
  }
  if (dumping.has_failed) {
    return FlightDumpPath(dumping.job->folder, dumping.job->rank);
  }
  return Write(*dumping.job, trigger, reason);
}

void DumpFlightOfFailure(FlightTrigger trigger, const std::string& reason) {
  Dumping& dumping = Dumping::OfProcess();
  absl::MutexLock lock(&dumping.mutex);
  if (!dumping.job.has_value() || dumping.has_failed) return;
  dumping.has_failed = true;
  Log(trigger, Write(*dumping.job, trigger, reason), dumping.job->folder);
}

}  // namespace tandem
