#include "core/flight/dump_file.h"

#include <errno.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/flight/recorder.h"
#include "core/process/signal_thread.h"

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
  // A rank that fails by itself says what is wrong, and needs no look at its
  // dump.
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

namespace {

constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kMostSignals = 65;

// All that handlers touch. They may run on any thread, at any point.
int write_fd = -1;
struct sigaction before[kMostSignals];
std::atomic<bool> is_dying{false};
std::atomic<bool> has_dumped{false};
std::atomic<pid_t> writer{0};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may touch only lock-free atomics");

void Tell(int signal_number) {
  const auto byte = static_cast<unsigned char>(signal_number);
  // A full pipe has a dump under way.
  [[maybe_unused]] const ssize_t written = write(write_fd, &byte, 1);
}

void OnRequest(int signal_number) {
  const int kept = errno;
  Tell(signal_number);
  errno = kept;
}

void AwaitDump() {
  constexpr timespec kSlice = {0, 10 * 1000 * 1000};
  for (int i = 0; i < 300 && !has_dumped; ++i) nanosleep(&kSlice, nullptr);
}

void OnFatal(int signal_number, siginfo_t* info, void* /*context*/) {
  // The thread that writes may be the one that dies.
  if (gettid() != writer && !is_dying.exchange(true)) Tell(signal_number);
  if (gettid() != writer) AwaitDump();
  sigaction(signal_number, &before[signal_number], nullptr);
  // What the processor raised comes again by itself.
  if (info->si_code <= 0) raise(signal_number);
}

// Held while a dump is written, and told of.
std::timed_mutex& Writing() {
  static auto* const mutex = new std::timed_mutex;
  return *mutex;
}

// Takes it for good, before static objects that a dump needs are destroyed: a
// line that glog is given after its own would abort the process.
void EndWriting() {
  constexpr std::chrono::seconds kLastDump(1);
  [[maybe_unused]] const bool taken = Writing().try_lock_for(kLastDump);
}

void WriteDumps(int read_fd) {
  writer = gettid();
  unsigned char signal_number = 0;
  while (true) {
    const ssize_t got = read(read_fd, &signal_number, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1) return;
    const std::unique_lock<std::timed_mutex> lock(Writing(), std::try_to_lock);
    if (!lock.owns_lock()) return;  // the process ends
    const std::string name =
        absl::StrCat("SIG", sigabbrev_np(static_cast<int>(signal_number)));
    if (signal_number != SIGUSR2) {
      DumpFlightOfFailure(FlightTrigger::kDied, "killed by " + name);
      has_dumped = true;
      continue;
    }
    const absl::StatusOr<std::string> written =
        DumpFlight(FlightTrigger::kSignal, "asked by " + name);
    LOG(WARNING) << name << ": "
                 << (written.ok() ? "what this rank is doing is in " + *written
                                  : std::string(written.status().message()));
  }
}

void HandleRequests() {
  sigaction(SIGUSR2, nullptr, &before[SIGUSR2]);
  if (before[SIGUSR2].sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = OnRequest;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
}

}  // namespace

void HandleFlightSignals() {
  StartSignalThread();
  int ends[2] = {};
  if (write_fd >= 0 || pipe2(ends, O_CLOEXEC) != 0) return;
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  write_fd = ends[1];
  std::atexit(EndWriting);
  std::thread(WriteDumps, ends[0]).detach();
  HandleRequests();
  for (const int each : kFatal) {
    struct sigaction action = {};
    action.sa_sigaction = OnFatal;
    action.sa_flags = SA_SIGINFO;
    sigaction(each, &action, &before[each]);
  }
}

}  // namespace tandem
