// Stop signals: those by which a launcher is asked to end its ranks.

#ifndef TANDEM_CORE_LAUNCH_STOP_SIGNALS_H_
#define TANDEM_CORE_LAUNCH_STOP_SIGNALS_H_

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Signals of this process as something to poll.

// While it lives, the given signals end nothing but are queued in a pipe,
// whichever thread they reach (core/process/signal_thread.h: one of its own). A
// signal that is ignored (nohup, a shell's background job) stays so, but for
// SIGCHLD. At most one at a time in a process.
class SignalPipe {
 public:
  // FailedPrecondition when there is one already.
  static absl::StatusOr<std::unique_ptr<SignalPipe>> Install(
      const std::vector<int>& signals);

  // Puts back what the signals did before.
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  // Readable when a signal has come.
  int fd() const { return read_fd_; }
  // The next signal that came; does not block.
  std::optional<int> Next();

 private:
  SignalPipe() = default;

  int read_fd_ = -1;
  int write_fd_ = -1;
  std::vector<std::pair<int, struct sigaction>> before_;
};

// While it lives, writing to a pipe that nobody reads is an error (EPIPE)
// instead of the process's end.
class IgnoreSigpipe {
 public:
  IgnoreSigpipe() {
    struct sigaction action = {};
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &before_);
  }
  ~IgnoreSigpipe() { sigaction(SIGPIPE, &before_, nullptr); }
  IgnoreSigpipe(const IgnoreSigpipe&) = delete;
  IgnoreSigpipe& operator=(const IgnoreSigpipe&) = delete;

 private:
  struct sigaction before_;
};

// Whether a signal asks ranks to end.
bool StopsRanks(int signal);
// Whether a second such signal ends ranks at once.
bool KillsRanks(int signal);

// Waits, between attempts, until one comes that stops, which is returned, or
// until `delay` is over: 0. Ctrl-Z stops this process meanwhile.
int AwaitStopSignal(SignalPipe& signals, std::chrono::milliseconds delay);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_STOP_SIGNALS_H_
