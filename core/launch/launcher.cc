#include "core/launch/launcher.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/launch/attempt.h"
#include "core/launch/launch.h"
#include "core/launch/launcher_messages.h"
#include "core/launch/output_relay.h"
#include "core/launch/rank_process.h"
#include "core/launch/restarts.h"
#include "core/process/process_end.h"
#include "core/process/signal_pipe.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

milliseconds Since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

class Launcher {
 public:
  Launcher(const LaunchPlan& plan, const LauncherOptions& options,
           const std::vector<std::string>& argv)
      : plan_(plan),
        options_(options),
        argv_(argv),
        outputs_{&out_, &err_, options.last_lines},
        restarts_(plan.restarts.most, options.restart_delay) {}

  // Before any attempt.
  absl::Status Start();
  // Attempts, until there is no further one.
  int Run();

 private:
  absl::StatusOr<int> ServeStore();
  AttemptEnd RunAttempt();
  bool IsTriedAgain(const AttemptEnd& end) const;
  absl::StatusOr<int> NextAttempt() const;
  void SayHistory();
  int AwaitRestart(milliseconds delay);

  LaunchPlan plan_;
  const LauncherOptions& options_;
  const std::vector<std::string>& argv_;
  OutputSink out_{STDOUT_FILENO};
  OutputSink err_{STDERR_FILENO};
  const RankOutputs outputs_;
  LauncherMessages messages_{plan_.launch, &err_};
  Restarts restarts_;
  std::unique_ptr<SignalPipe> signals_;
  int port_ = 0;  // of the store
};

absl::Status Launcher::Start() {
  TANDEM_ASSIGN_OR_RETURN(
      signals_, SignalPipe::Install({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1,
                                     SIGUSR2, SIGTSTP}));
  TANDEM_ASSIGN_OR_RETURN(port_, ServeStore());
  return absl::OkStatus();
}

absl::StatusOr<int> Launcher::ServeStore() {
  const Rendezvous& rendezvous = plan_.launch.rendezvous;
  if (rendezvous.kind != Rendezvous::Kind::kTcp ||
      plan_.launch.node_rank != 0) {
    return rendezvous.port;
  }
  if (plan_.launch.nnodes > 1) {
    TANDEM_RETURN_IF_ERROR(CheckOthersCanReach(rendezvous.host));
  }
  return options_.serve_store(rendezvous.host, rendezvous.port);
}

AttemptEnd Launcher::RunAttempt() {
  Attempt attempt(plan_, port_, options_, signals_.get(), &messages_);
  const absl::Status started = attempt.Start(argv_, outputs_);
  if (!started.ok()) {
    const std::string why =
        absl::StrCat("cannot start the ranks: ", started.message());
    messages_.Say(why);
    return {1, 0, why};
  }
  AttemptEnd end = attempt.Run();
  if (end.stop_signal != 0 && end.exit_code != 0) {
    messages_.Say(absl::StrCat("stopped by ", SignalName(end.stop_signal)));
  }
  return end;
}

bool Launcher::IsTriedAgain(const AttemptEnd& end) const {
  return end.exit_code != 0 && end.stop_signal == 0 &&
         end.exit_code != options_.refusal_code && plan_.restarts.most > 0;
}

absl::StatusOr<int> Launcher::NextAttempt() const {
  const Launch& launch = plan_.launch;
  if (launch.nnodes == 1 || options_.next_attempt == nullptr ||
      launch.rendezvous.kind != Rendezvous::Kind::kTcp) {
    return plan_.restarts.done + 1;
  }
  TANDEM_ASSIGN_OR_RETURN(const Launch first, LaunchOfRank(plan_, 0, port_));
  return options_.next_attempt(first, plan_.restarts.done);
}

void Launcher::SayHistory() {
  messages_.Say(
      absl::StrCat("gives up after ", restarts_.max_restarts(),
                   restarts_.max_restarts() == 1 ? " restart" : " restarts",
                   "; what ended each attempt:"));
  for (const std::string& line : restarts_.history()) {
    err_.WriteLine(absl::StrCat("    ", line));
  }
}

// The signal that stops it meanwhile; 0: none came.
int Launcher::AwaitRestart(milliseconds delay) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    while (const std::optional<int> signal = signals_->Next()) {
      if (StopsRanks(*signal)) return *signal;
      if (*signal == SIGTSTP) raise(SIGSTOP);
    }
    const milliseconds left = delay - Since(start);
    if (left <= milliseconds(0)) return 0;
    pollfd fd = {signals_->fd(), POLLIN, 0};
    poll(&fd, 1, static_cast<int>(left.count()) + 1);
  }
}

int Launcher::Run() {
  for (;;) {
    const Clock::time_point start = Clock::now();
    const AttemptEnd end = RunAttempt();
    if (!IsTriedAgain(end)) return end.exit_code;
    restarts_.NoteEnd(plan_.restarts.done, Since(start), end.cause);
    const absl::StatusOr<int> next = NextAttempt();
    if (!next.ok()) {
      messages_.Say(absl::StrCat("cannot restart with the other nodes: ",
                                 next.status().message()));
      return end.exit_code;
    }
    if (!restarts_.Allows(*next)) {
      SayHistory();
      return end.exit_code;
    }
    const milliseconds delay = restarts_.DelayBefore(*next);
    messages_.Say(absl::StrCat("restart ", *next, " of ",
                               restarts_.max_restarts(), " in ",
                               delay.count() / 1000.0, " s"));
    plan_.restarts.done = *next;
    if (const int signal = AwaitRestart(delay); signal != 0) {
      messages_.Say(absl::StrCat("stopped by ", SignalName(signal)));
      return 128 + signal;
    }
  }
}

}  // namespace

int RunLauncher(const LaunchPlan& plan, const std::vector<std::string>& argv,
                const LauncherOptions& options) {
  const IgnoreSigpipe no_sigpipe;
  Launcher launcher(plan, options, argv);
  const absl::Status started = launcher.Start();
  if (!started.ok()) {
    OutputSink(STDERR_FILENO)
        .WriteLine(absl::StrCat("tandem: cannot start the ranks: ",
                                started.message()));
    return 1;
  }
  return launcher.Run();
}

}  // namespace tandem
