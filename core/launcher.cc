#include "core/launcher.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/environment.h"
#include "core/launch.h"
#include "core/output_relay.h"
#include "core/process_end.h"
#include "core/rank_process.h"
#include "core/signal_pipe.h"
#include "core/sockets.h"
#include "core/status_macros.h"

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
  int CountRunning() const;
  int PollTimeout() const;
  void AwaitEvents();
  void HandleSignals();
  void SignalAll(int signal);
  void Suspend();
  void Reap();
  void HandleEnds(const std::vector<RankProcess*>& ended);
  void ReportDeath(RankProcess& dead);
  void TellNodes(const RankProcess& dead);
  void ReportStopped(const RankProcess& rank);
  void KillWhenOverdue();
  void Say(const std::string& line) {
    err_.WriteLine(absl::StrCat("tandem: ", line));
  }
  std::string Name(const RankProcess& rank) const;

  const LaunchPlan& plan_;
  const LauncherOptions& options_;
  OutputSink out_{STDOUT_FILENO};
  OutputSink err_{STDERR_FILENO};
  const RankOutputs outputs_;
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
  while (CountRunning() > 0) {
    AwaitEvents();
    HandleSignals();
    for (RankProcess& rank : ranks_) {
      rank.out.Pump();
      rank.err.Pump();
    }
    Reap();
    KillWhenOverdue();
  }
  for (RankProcess& rank : ranks_) {
    rank.out.Finish();
    rank.err.Finish();
  }
  if (stop_signal_ != 0 && exit_code_ != 0) {
    Say(absl::StrCat("stopped by ", SignalName(stop_signal_)));
  }
  return exit_code_;
}

int Launcher::CountRunning() const {
  return std::count_if(
      ranks_.begin(), ranks_.end(),
      [](const RankProcess& rank) { return !rank.end.has_value(); });
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
      SignalAll(*signal);
    } else if (stop_signal_ == 0) {
      stop_signal_ = *signal;
      Say(absl::StrCat(SignalName(*signal),
                       " passed on to the ranks; a second one kills them"));
      SignalAll(*signal);
      // Ranks that are being stopped because one died get no more time.
      const Clock::time_point at = Clock::now() + options_.stop_grace;
      kill_at_ = std::min(kill_at_.value_or(at), at);
    } else {
      kill_at_ = Clock::now();
    }
  }
}

void Launcher::SignalAll(int signal) {
  for (RankProcess& rank : ranks_) {
    if (!rank.end.has_value()) rank.process.Signal(signal);
  }
}

// Ctrl-Z: the ranks, in groups of their own, do not get it from the terminal.
void Launcher::Suspend() {
  SignalAll(SIGTSTP);
  raise(SIGSTOP);  // until the shell's fg or bg
  SignalAll(SIGCONT);
}

void Launcher::Reap() {
  std::vector<RankProcess*> ended;
  for (RankProcess& rank : ranks_) {
    if (rank.end.has_value()) continue;
    rank.end = rank.process.Poll();
    if (rank.end.has_value()) ended.push_back(&rank);
  }
  // Of several that ended since the last look, one that a signal killed is more
  // likely the cause than one that exited because it lost the other.
  std::stable_partition(ended.begin(), ended.end(), [](RankProcess* rank) {
    return WIFSIGNALED(*rank->end);
  });
  HandleEnds(ended);
}

void Launcher::HandleEnds(const std::vector<RankProcess*>& ended) {
  for (RankProcess* rank : ended) {
    const int code = ShellExitCode(*rank->end);
    if (code == 0) continue;
    if (exit_code_ == 0) exit_code_ = code;
    if (stop_signal_ != 0) {
      ReportStopped(*rank);
    } else if (!stopping_) {
      ReportDeath(*rank);
      stopping_ = true;
      kill_at_ = Clock::now() + options_.death_grace;
      SignalAll(SIGTERM);
      TellNodes(*rank);
    } else if (*rank->end != SIGTERM && *rank->end != SIGKILL) {
      Say(absl::StrCat(Name(*rank),
                       " then ended too: ", DescribeEnd(*rank->end)));
    }
  }
}

void Launcher::ReportDeath(RankProcess& dead) {
  dead.out.Finish();
  dead.err.Finish();
  Say(absl::StrCat(Name(dead), " died: ", DescribeEnd(*dead.end)));
  const std::vector<std::string> lines = dead.err.LastLinesRead();
  if (lines.empty()) {
    Say("it had written nothing to stderr");
  } else {
    Say("its last error lines:");
    for (const std::string& line : lines) {
      err_.WriteLine(absl::StrCat("    ", line));
    }
  }
  const int running = CountRunning();
  if (running == 0) return;
  Say(absl::StrCat("stopping the ", running, " that still ",
                   running == 1 ? "runs" : "run", " on this node"));
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

// Ranks were asked to stop: only another end than that is news.
void Launcher::ReportStopped(const RankProcess& rank) {
  if (!WIFSIGNALED(*rank.end) || WTERMSIG(*rank.end) == stop_signal_) return;
  Say(absl::StrCat(Name(rank), " ended: ", DescribeEnd(*rank.end)));
}

void Launcher::KillWhenOverdue() {
  if (!kill_at_.has_value() || Clock::now() < *kill_at_) return;
  for (RankProcess& rank : ranks_) {
    if (rank.end.has_value()) continue;
    Say(absl::StrCat(Name(rank), " did not stop and is killed"));
    rank.process.Signal(SIGKILL);
  }
  kill_at_.reset();
}

std::string Launcher::Name(const RankProcess& rank) const {
  std::string where = absl::StrCat("pid ", rank.process.pid());
  if (plan_.launch.nnodes > 1) {
    where = absl::StrCat("node ", plan_.launch.node_rank, ", local rank ",
                         rank.local_rank, ", ", where);
  }
  return absl::StrCat("rank ", rank.rank, " of ", plan_.launch.world_size, " (",
                      where, ")");
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
