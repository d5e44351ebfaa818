#include "core/launch/launcher.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/launch/launch.h"
#include "core/launch/launcher_messages.h"
#include "core/launch/output_relay.h"
#include "core/launch/rank_process.h"
#include "core/process/process_end.h"
#include "core/process/signal_pipe.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

bool StopsRanks(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

class Launcher {
 public:
  Launcher(const LaunchPlan& plan, const LauncherOptions& options)
      : plan_(plan),
        options_(options),
        outputs_{&out_, &err_, options.last_lines} {}
  ~Launcher() {
    if (telling_.joinable()) telling_.join();
  }

  absl::Status Start(const std::vector<std::string>& argv);
  int Run();

 private:
  absl::StatusOr<int> ServeStore();
  int PollTimeout() const;
  void AwaitEvents();
  void HandleSignals();
  void Suspend();
  bool GoesOnWithout(const RankProcess& dead) const;
  void HandleEnds(const std::vector<RankProcess*>& ended);
  void TellNodes(const RankProcess& dead);
  void KillWhenOverdue();

  const LaunchPlan& plan_;
  const LauncherOptions& options_;
  OutputSink out_{STDOUT_FILENO};
  OutputSink err_{STDERR_FILENO};
  const RankOutputs outputs_;
  LauncherMessages messages_{plan_.launch, &err_};
  std::unique_ptr<SignalPipe> signals_;
  std::vector<RankProcess> ranks_;
  int port_ = 0;         // of the store
  std::thread telling_;  // the other nodes
  int exit_code_ = 0;
  int stop_signal_ = 0;                       // that was passed on
  bool stopping_ = false;                     // because of a death
  std::optional<Clock::time_point> kill_at_;  // who still runs then
};

absl::Status Launcher::Start(const std::vector<std::string>& argv) {
  TANDEM_ASSIGN_OR_RETURN(
      signals_, SignalPipe::Install({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1,
                                     SIGUSR2, SIGTSTP}));
  TANDEM_ASSIGN_OR_RETURN(port_, ServeStore());
  for (int i = 0; i < plan_.launch.local_world_size; ++i) {
    TANDEM_ASSIGN_OR_RETURN(RankProcess rank,
                            StartRankProcess(plan_, i, port_, argv, outputs_));
    ranks_.push_back(std::move(rank));
  }
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

int Launcher::Run() {
  while (CountRunning(ranks_) > 0) {
    AwaitEvents();
    HandleSignals();
    for (RankProcess& rank : ranks_) {
      rank.out.Pump();
      rank.err.Pump();
    }
    HandleEnds(TakeEnded(ranks_));
    KillWhenOverdue();
  }
  for (RankProcess& rank : ranks_) {
    rank.out.Finish();
    rank.err.Finish();
  }
  if (stop_signal_ != 0 && exit_code_ != 0) {
    messages_.Say(absl::StrCat("stopped by ", SignalName(stop_signal_)));
  }
  return exit_code_;
}

// Milliseconds until something is due; -1: until something happens.
int Launcher::PollTimeout() const {
  if (!kill_at_.has_value()) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      *kill_at_ - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count() + 1));
}

void Launcher::AwaitEvents() {
  std::vector<pollfd> fds = {{signals_->fd(), POLLIN, 0}};
  for (const RankProcess& rank : ranks_) {
    for (const int fd : {rank.out.fd(), rank.err.fd()}) {
      if (fd >= 0) fds.push_back({fd, POLLIN, 0});
    }
  }
  poll(fds.data(), fds.size(), PollTimeout());
}

void Launcher::HandleSignals() {
  while (const std::optional<int> signal = signals_->Next()) {
    if (*signal == SIGCHLD) continue;
    if (*signal == SIGTSTP) {
      Suspend();
    } else if (!StopsRanks(*signal)) {
      SignalRunning(ranks_, *signal);
    } else if (stop_signal_ == 0) {
      stop_signal_ = *signal;
      messages_.Say(
          absl::StrCat(SignalName(*signal),
                       " passed on to the ranks; a second one kills them"));
      SignalRunning(ranks_, *signal);
      // Ranks that are being stopped because one died get no more time.
      const Clock::time_point at = Clock::now() + options_.stop_grace;
      kill_at_ = std::min(kill_at_.value_or(at), at);
    } else {
      kill_at_ = Clock::now();
    }
  }
}

// Ctrl-Z: the ranks, in groups of their own, do not get it from the terminal.
void Launcher::Suspend() {
  SignalRunning(ranks_, SIGTSTP);
  raise(SIGSTOP);  // until the shell's fg or bg
  SignalRunning(ranks_, SIGCONT);
}

// Where nodes are several, another one may have ranks of that kind.
bool Launcher::GoesOnWithout(const RankProcess& dead) const {
  const auto& can_be_lost = options_.can_be_lost;
  const bool stops = stopping_ || stop_signal_ != 0;
  if (stops || can_be_lost == nullptr || !can_be_lost(dead.rank)) return false;
  const auto is_left = [&](const RankProcess& each) {
    return can_be_lost(each.rank) && each.end.value_or(0) == 0;
  };
  return plan_.launch.nnodes > 1 ||
         std::any_of(ranks_.begin(), ranks_.end(), is_left);
}

void Launcher::HandleEnds(const std::vector<RankProcess*>& ended) {
  for (RankProcess* rank : ended) {
    const int code = ShellExitCode(*rank->end);
    if (code == 0) continue;
    if (GoesOnWithout(*rank)) {
      messages_.Lost(*rank);
      continue;
    }
    if (exit_code_ == 0) exit_code_ = code;
    if (stop_signal_ != 0) {
      messages_.Stopped(*rank, stop_signal_);
    } else if (!stopping_) {
      messages_.Died(*rank, CountRunning(ranks_));
      stopping_ = true;
      kill_at_ = Clock::now() + options_.death_grace;
      StopRunning(ranks_);
      TellNodes(*rank);
    } else if (*rank->end != SIGTERM && *rank->end != SIGKILL) {
      messages_.EndedToo(*rank);
    }
  }
}

// While the others end. A rank that knew why has told the job itself, before.
void Launcher::TellNodes(const RankProcess& dead) {
  if (plan_.launch.nnodes == 1 || options_.tell_nodes == nullptr ||
      plan_.launch.rendezvous.kind != Rendezvous::Kind::kTcp) {
    return;
  }
  const auto launch = LaunchOfRank(plan_, dead.local_rank, port_);
  if (!launch.ok()) return;
  telling_ =
      std::thread([this, launch = *launch, how = DescribeEnd(*dead.end)] {
        options_.tell_nodes(launch, how);
      });
}

void Launcher::KillWhenOverdue() {
  if (!kill_at_.has_value() || Clock::now() < *kill_at_) return;
  for (RankProcess& rank : ranks_) {
    if (rank.end.has_value()) continue;
    messages_.IsKilled(rank);
    rank.process.Signal(SIGKILL);
  }
  kill_at_.reset();
}

}  // namespace

absl::StatusOr<Launch> LaunchOfRank(const LaunchPlan& plan, int local_rank,
                                    int port) {
  TANDEM_ASSIGN_OR_RETURN(
      LaunchPlan its,
      ResolveLaunch({}, EnvironmentOfRank(plan, local_rank, port, {})));
  return its.launch;
}

int RunLauncher(const LaunchPlan& plan, const std::vector<std::string>& argv,
                const LauncherOptions& options) {
  const IgnoreSigpipe no_sigpipe;
  Launcher launcher(plan, options);
  const absl::Status started = launcher.Start(argv);
  if (!started.ok()) {
    OutputSink(STDERR_FILENO)
        .WriteLine(absl::StrCat("tandem: cannot start the ranks: ",
                                started.message()));
    return 1;
  }
  return launcher.Run();
}

}  // namespace tandem
