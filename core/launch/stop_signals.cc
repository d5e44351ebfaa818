#include "core/launch/stop_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <optional>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "core/base/system_error.h"

namespace tandem {
namespace {

std::atomic<int> write_end{-1};

void QueueSignal(int signal) {
  const int saved = errno;
  const unsigned char byte = static_cast<unsigned char>(signal);
  // A full pipe has enough signals in it to wake the reader.
  if (write(write_end.load(), &byte, 1) < 0) errno = saved;
  errno = saved;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SignalPipe>> SignalPipe::Install(
    const std::vector<int>& signals) {
  if (write_end.load() >= 0) {
    return absl::FailedPreconditionError(
        "this process's signals already go to a SignalPipe");
  }
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    return SystemError(errno, "pipe2");
  }
  auto result = absl::WrapUnique(new SignalPipe());
  result->read_fd_ = fds[0];
  result->write_fd_ = fds[1];
  write_end = fds[1];
  for (const int signal : signals) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN && signal != SIGCHLD) continue;
    struct sigaction action = {};
    action.sa_handler = QueueSignal;
    action.sa_flags = SA_RESTART;
    sigfillset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
    result->before_.emplace_back(signal, before);
  }
  return result;
}

SignalPipe::~SignalPipe() {
  for (const auto& [signal, before] : before_) {
    sigaction(signal, &before, nullptr);
  }
  write_end = -1;
  close(read_fd_);
  close(write_fd_);
}

std::optional<int> SignalPipe::Next() {
  unsigned char byte;
  if (read(read_fd_, &byte, 1) != 1) return std::nullopt;
  return byte;
}

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

bool KillsRanks(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

bool StopsRanks(int signal) { return KillsRanks(signal) || signal == SIGUSR1; }

int AwaitStopSignal(SignalPipe& signals, milliseconds delay) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    while (const std::optional<int> signal = signals.Next()) {
      if (StopsRanks(*signal)) return *signal;
      if (*signal == SIGTSTP) raise(SIGSTOP);
    }
    const auto past = Clock::now() - start;
    const milliseconds left =
        delay - std::chrono::duration_cast<milliseconds>(past);
    if (left <= milliseconds(0)) return 0;
    pollfd fd = {signals.fd(), POLLIN, 0};
    poll(&fd, 1, static_cast<int>(left.count()) + 1);
  }
}

}  // namespace tandem
