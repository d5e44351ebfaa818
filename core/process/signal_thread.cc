#include "core/process/signal_thread.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

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

}  // namespace tandem
