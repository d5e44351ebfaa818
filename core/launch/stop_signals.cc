#include "core/launch/stop_signals.h"

#include <poll.h>

#include <csignal>
#include <optional>

namespace tandem {

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
