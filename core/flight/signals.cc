#include "core/flight/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/flight/dump_file.h"
#include "core/process/signal_thread.h"

namespace tandem {
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
