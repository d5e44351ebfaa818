#include "core/program/interrupt.h"

#include <signal.h>
#include <string.h>

#include <atomic>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

std::atomic<int> interrupt_signal{0};
std::atomic<bool> has_interrupted_wait{false};
std::atomic<int64_t> grace_in_ms{5000};
static_assert(std::atomic<int>::is_always_lock_free,
              "a signal handler may touch only lock-free atomics");

void OnSignal(int signal_number) { interrupt_signal.store(signal_number); }

void Handle(int signal_number) {
  struct sigaction before = {};
  sigaction(signal_number, nullptr, &before);
  // Started with the signal ignored (nohup, a shell's "&"): so it stays.
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  // Back to the default after the first: a second signal ends the process.
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

void HandleInterrupts() {
  Handle(SIGINT);
  Handle(SIGTERM);
  Handle(SIGUSR1);
}

void SetInterruptGrace(absl::Duration grace) {
  grace_in_ms = absl::ToInt64Milliseconds(grace);
}

absl::Duration InterruptGrace() {
  return absl::Milliseconds(grace_in_ms.load());
}

int InterruptSignal() { return interrupt_signal.load(); }

void AdoptInterrupt(int signal) {
  int none = 0;
  interrupt_signal.compare_exchange_strong(none, signal);
}

absl::Status InterruptError() {
  return absl::CancelledError(
      absl::StrCat("stopped by SIG", sigabbrev_np(interrupt_signal.load())));
}

void NoteInterruptedWait() { has_interrupted_wait = true; }

bool HasInterruptedWait() { return has_interrupted_wait; }

}  // namespace tandem
