#include "core/program/interrupt.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/process/signal_thread.h"

namespace tandem {
namespace {

constexpr int kMostSignals = 65;

std::atomic<int> interrupt_signal{0};
// When the first of each kind came, in ms of a clock that nobody sets; 0: none.
std::atomic<int64_t> first_at[kMostSignals];
// The process that passes signals on; 0: nobody does.
std::atomic<pid_t> launcher{0};
std::atomic<bool> has_interrupted_wait{false};
std::atomic<int64_t> grace_in_ms{5000};
static_assert(std::atomic<int64_t>::is_always_lock_free,
              "a signal handler may touch only lock-free atomics");

int64_t NowInMs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000} + now.tv_nsec / 1000000;
}

void OnSignal(int signal_number, siginfo_t* info, void* /*context*/) {
  const int64_t now = NowInMs();
  int64_t first = 0;
  if (first_at[signal_number].compare_exchange_strong(first, now)) {
    int none = 0;
    interrupt_signal.compare_exchange_strong(none, signal_number);
    return;
  }
  constexpr int64_t kEchoInMs =
      std::chrono::duration_cast<std::chrono::milliseconds>(kSignalEcho)
          .count();
  if (now - first < kEchoInMs) return;
  // A launcher that wants its ranks to end at once kills them. A sender outside
  // the container has no process number inside it: 0.
  const pid_t repeats = launcher;
  if (repeats != 0 && info->si_code <= 0 && info->si_pid == repeats) return;
  EndBySignal(signal_number);
}

void Handle(int signal_number) {
  struct sigaction before = {};
  sigaction(signal_number, nullptr, &before);
  // Started with the signal ignored (nohup, a shell's "&"): so it stays.
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

void HandleInterrupts() {
  StartSignalThread();
  if (std::getenv("TANDEM_LAUNCHER") != nullptr) launcher = getppid();
  for (const int each : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) Handle(each);
}

void SetInterruptGrace(absl::Duration grace) {
  grace_in_ms = absl::ToInt64Milliseconds(grace);
}

absl::Duration InterruptGrace() {
  return absl::Milliseconds(grace_in_ms.load());
}

int InterruptSignal() { return interrupt_signal.load(); }

bool IsInterruptPressing() {
  const int signal = InterruptSignal();
  if (signal != 0 && signal != SIGUSR1) return true;
  return first_at[SIGINT] != 0 || first_at[SIGTERM] != 0 ||
         first_at[SIGHUP] != 0;
}

void AdoptInterrupt(int signal) { interrupt_signal = signal; }

absl::Status InterruptError() {
  return absl::CancelledError(
      absl::StrCat("stopped by SIG", sigabbrev_np(interrupt_signal.load())));
}

void NoteInterruptedWait() { has_interrupted_wait = true; }

bool HasInterruptedWait() { return has_interrupted_wait; }

}  // namespace tandem
