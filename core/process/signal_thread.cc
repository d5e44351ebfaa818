#include "core/process/signal_thread.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tandem {
namespace {

constexpr int kSignals[] = {SIGHUP,  SIGINT,  SIGTERM, SIGUSR1,
                            SIGUSR2, SIGCHLD, SIGTSTP};
constexpr int kEnding[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1};

std::atomic<bool> is_started{false};
sigset_t mask_before;

sigset_t SignalsTaken() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int each : kSignals) sigaddset(&taken, each);
  return taken;
}

void Serve() {
  pthread_setname_np(pthread_self(), "signals");
  const sigset_t taken = SignalsTaken();
  pthread_sigmask(SIG_UNBLOCK, &taken, nullptr);
  while (true) pause();
}

// Restores the mask of a forked child, which has no signal thread.
void RestoreMask() {
  if (!is_started.exchange(false)) return;
  pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
}

void End(int signal_number) { _exit(128 + signal_number); }

void EndOnSignals() {
  for (const int each : kEnding) {
    struct sigaction before = {};
    sigaction(each, nullptr, &before);
    if (before.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_handler = End;
    sigaction(each, &action, nullptr);
  }
}

}  // namespace

void StartSignalThread() {
  if (is_started.exchange(true)) return;
  const sigset_t taken = SignalsTaken();
  pthread_sigmask(SIG_BLOCK, &taken, &mask_before);
  static const int registered = pthread_atfork(nullptr, nullptr, RestoreMask);
  static_cast<void>(registered);
  if (getpid() == 1) EndOnSignals();
  std::thread(Serve).detach();
}

bool HasSignalThread() { return is_started; }

bool CatchesSignal(pid_t pid, int signal) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(status, line)) {
    absl::string_view mask = line;
    if (!absl::ConsumePrefix(&mask, "SigCgt:")) continue;
    uint64_t bits = 0;
    return absl::SimpleHexAtoi(mask, &bits) &&
           ((bits >> (signal - 1)) & 1) != 0;
  }
  return false;
}

void EndBySignal(int signal_number) {
  signal(signal_number, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal_number);
  pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  raise(signal_number);
  _exit(128 + signal_number);
}

}  // namespace tandem
