#include "core/launch/launcher.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/elastic/rank_counts.h"
#include "core/launch/attempt.h"
#include "core/launch/elastic_node.h"
#include "core/launch/launch.h"
#include "core/launch/launcher_messages.h"
#include "core/launch/output_relay.h"
#include "core/launch/rank_process.h"
#include "core/launch/restarts.h"
#include "core/launch/stop_signals.h"
#include "core/process/process_end.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A word of all errors about values that are no numbers any more: losses and
// weights (tools/trainer/run_report.cc, tools/trainer/checkpoints/saver.cc),
// what layers compute (core/finite/checked_layers.cc) and gradients
// (parallel/optim/gradient_clipping.cc, core/precision/loss_scale.cc).
bool IsAboutValues(const std::string& error) {
  return absl::StrContains(error, "diverged") ||
         absl::StrContains(error, "finite");
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

  // Before any attempt. Cancelled by a signal, stop_signal().
  absl::Status Start();
  int stop_signal() const { return stop_signal_; }
  // Attempts, until there is no further one.
  int Run();

 private:
  absl::StatusOr<int> ServeStore();
  absl::Status AwaitTurn();
  AttemptEnd RunAttempt();
  int EndWith(int exit_code, const std::string& why);
  int EndWithoutTurn(const absl::Status& why, int exit_code);
  bool IsTriedAgain(const AttemptEnd& end) const;
  bool EndsAsBefore(const AttemptEnd& end);
  bool MayChangeRanks() const;
  absl::StatusOr<int> NextAttempt() const;
  std::string Progress() const;
  std::string ChangeRanks(const AttemptEnd& end);
  std::optional<int> NextAllowed(const AttemptEnd& end);

  LaunchPlan plan_;
  const LauncherOptions& options_;
  const std::vector<std::string>& argv_;
  OutputSink out_{STDOUT_FILENO};
  OutputSink err_{STDERR_FILENO};
  const RankOutputs outputs_;
  LauncherMessages messages_{plan_.launch, &err_};
  Restarts restarts_;
  std::optional<RankCountRule> rule_;  // of an elastic job on one node
  std::optional<ElasticNode> node_;    // of one on several
  std::unique_ptr<SignalPipe> signals_;
  int port_ = 0;          // of the store
  int stop_signal_ = 0;   // received between attempts
  std::string last_end_;  // what EndsAsBefore compares
};

// Files that the launcher has open: its own, and two pipes and the store's
// connection of each rank.
uint64_t DescriptorsFor(int ranks) {
  constexpr uint64_t kOwn = 20;
  return kOwn + 3 * static_cast<uint64_t>(ranks);
}

absl::Status CheckDescriptors(int ranks) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  const uint64_t needed = DescriptorsFor(ranks);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "a launcher of ", ranks, " ranks has about ", needed,
      " files open, and ulimit -n allows ", limit.rlim_cur, ": raise it"));
}

absl::Status Launcher::Start() {
  // An elastic job goes on with as many ranks as can be started.
  if (!options_.rank_counts) {
    TANDEM_RETURN_IF_ERROR(CheckDescriptors(plan_.launch.local_world_size));
  }
  TANDEM_ASSIGN_OR_RETURN(
      signals_, SignalPipe::Install({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1,
                                     SIGUSR2, SIGTSTP}));
  TANDEM_ASSIGN_OR_RETURN(port_, ServeStore());
  if (!options_.rank_counts) return absl::OkStatus();
  messages_.Say(absl::StrCat("an elastic job, which can run on ",
                             options_.rank_counts->ToString(), " ranks"));
  if (plan_.launch.nnodes == 1) {
    rule_.emplace(*options_.rank_counts, Progress());
  } else if (options_.meet_nodes != nullptr) {
    node_.emplace(plan_, options_.meet_nodes(plan_.launch, port_));
  }
  return absl::OkStatus();
}

// A name server or the network may hold it up; a signal ends it all the same.
absl::StatusOr<int> Launcher::ServeStore() {
  const Rendezvous& rendezvous = plan_.launch.rendezvous;
  if (rendezvous.kind != Rendezvous::Kind::kTcp ||
      plan_.launch.node_rank != 0) {
    return rendezvous.port;
  }
  const bool has_others = plan_.launch.nnodes > 1;
  CallThread calls;
  auto port = calls.Start<int>([serve = options_.serve_store, rendezvous,
                                has_others]() -> absl::StatusOr<int> {
    if (has_others) {
      TANDEM_RETURN_IF_ERROR(CheckOthersCanReach(rendezvous.host));
    }
    return serve(rendezvous.host, rendezvous.port);
  });
  while (port.wait_for(milliseconds(50)) != std::future_status::ready) {
    stop_signal_ = AwaitStopSignal(*signals_, milliseconds(0));
    if (stop_signal_ != 0) {
      return absl::CancelledError(
          absl::StrCat("stopped by ", SignalName(stop_signal_)));
    }
  }
  return port.get();
}

AttemptEnd Launcher::RunAttempt() {
  Attempt attempt(plan_, port_, options_, signals_.get(), &messages_,
                  node_ ? &*node_ : nullptr);
  const absl::Status started = attempt.Start(argv_, outputs_);
  if (!started.ok()) {
    const std::string why =
        absl::StrCat("cannot start the ranks: ", started.message());
    messages_.Say(why);
    AttemptEnd failed;
    failed.exit_code = 1;
    failed.cause = why;
    failed.started = attempt.started();
    return failed;
  }
  AttemptEnd end = attempt.Run();
  if (end.stop_signal != 0 && end.exit_code != 0) {
    messages_.Say(absl::StrCat("stopped by ", SignalName(end.stop_signal)));
  }
  return end;
}

// But for a signal that stops.
bool Launcher::IsTriedAgain(const AttemptEnd& end) const {
  if (end.exit_code == 0) return false;
  if (end.makes_room) return true;
  // Nodes that have come with other flags go again.
  const bool refused = end.exit_code == options_.refusal_code &&
                       !(node_ && node_->HasNewcomers());
  return !refused && plan_.restarts.most > 0;
}

// By an error of the values, which a job that goes on from the same checkpoint
// computes again. A connection that is lost twice in a process's first step
// tells nothing of a third one.
bool Launcher::EndsAsBefore(const AttemptEnd& end) {
  const bool repeats = IsAboutValues(end.error);
  const std::string now =
      repeats ? absl::StrCat(Progress(), "\n", end.error) : "";
  return std::exchange(last_end_, now) == now && repeats && !MayChangeRanks();
}

// Whether the job may go on with other ranks, where it comes to no checkpoint.
bool Launcher::MayChangeRanks() const {
  if (node_) return true;
  return rule_ && options_.rank_counts->AtMost(rule_->ranks() - 1).has_value();
}

absl::StatusOr<int> Launcher::NextAttempt() const {
  const Launch& launch = plan_.launch;
  if (node_ || launch.nnodes == 1 || options_.next_attempt == nullptr ||
      launch.rendezvous.kind != Rendezvous::Kind::kTcp) {
    return plan_.restarts.done + 1;
  }
  TANDEM_ASSIGN_OR_RETURN(const Launch first, LaunchOfRank(plan_, 0, port_));
  return options_.next_attempt(first, plan_.restarts.done);
}

std::string Launcher::Progress() const {
  return options_.progress == nullptr ? "" : options_.progress();
}

// With how many ranks an elastic job goes on; why that is not as before.
std::string Launcher::ChangeRanks(const AttemptEnd& end) {
  if (!rule_) return "";
  const std::string why =
      rule_->NoteEnd({end.started, end.first_dead, Progress()});
  plan_.launch.world_size = rule_->ranks();
  plan_.launch.local_world_size = rule_->ranks();
  return why;
}

// `why`: what other nodes are told of node 0.
int Launcher::EndWith(int exit_code, const std::string& why) {
  if (node_) node_->Leave(exit_code == 0, exit_code == 0 ? "" : why);
  return exit_code;
}

// Until plan_ is of an attempt that this node takes part in.
absl::Status Launcher::AwaitTurn() {
  if (!node_) return absl::OkStatus();
  std::string said;
  TANDEM_RETURN_IF_ERROR(
      node_->AwaitTurn(*signals_, &plan_, &said, &stop_signal_));
  messages_.Say(said);
  restarts_.NoteChange(said);
  // Node 0 alone counts restarts.
  if (!node_->is_first()) restarts_.Allow(plan_.restarts.done);
  return absl::OkStatus();
}

// Where no turn comes; `exit_code`: of this node's last attempt, 0: none.
int Launcher::EndWithoutTurn(const absl::Status& why, int exit_code) {
  if (absl::IsAborted(why) && why.message().empty()) {
    messages_.Say("the job is done");
    return exit_code;
  }
  messages_.History(std::string(why.message()), restarts_.history());
  if (stop_signal_ != 0) exit_code = 128 + stop_signal_;
  return EndWith(exit_code == 0 ? 1 : exit_code, std::string(why.message()));
}

// The number of the attempt that comes; none: there is none.
std::optional<int> Launcher::NextAllowed(const AttemptEnd& end) {
  const std::string change = ChangeRanks(end);
  const absl::StatusOr<int> next = NextAttempt();
  if (!next.ok()) {
    messages_.Say(absl::StrCat("cannot restart with the other nodes: ",
                               next.status().message()));
    return std::nullopt;
  }
  if (end.makes_room) restarts_.Allow(restarts_.max_restarts() + 1);
  if (node_ && !node_->is_first()) restarts_.Allow(*next);
  if (!restarts_.Allows(*next)) {
    messages_.GivesUp(restarts_);
    return std::nullopt;
  }
  if (!change.empty()) {
    restarts_.NoteChange(change);
    messages_.Say(change);
  }
  return *next;
}

int Launcher::Run() {
  for (AttemptEnd end;;) {
    const absl::Status turn = AwaitTurn();
    if (!turn.ok()) return EndWithoutTurn(turn, end.exit_code);
    const Clock::time_point start = Clock::now();
    end = RunAttempt();
    if (!IsTriedAgain(end))
      return EndWith(end.exit_code, "node 0's ranks failed");
    if (end.stop_signal != 0) {
      // A death that it would have gone on after is not what ended it.
      const bool ended_by_signal = end.died_first || end.makes_room;
      return EndWith(ended_by_signal ? 128 + end.stop_signal : end.exit_code,
                     "node 0 was stopped");
    }
    restarts_.NoteEnd(plan_.restarts.done, Clock::now() - start, end.cause);
    if (EndsAsBefore(end)) {
      messages_.History(
          "ended twice in the same way at the same step, and would again: is "
          "not started anew; what ended each attempt:",
          restarts_.history());
      return EndWith(end.exit_code, "node 0's ranks failed");
    }
    const std::optional<int> next = NextAllowed(end);
    if (!next) return EndWith(end.exit_code, "node 0 has no more restarts");
    if (node_ && (end.makes_room || !node_->is_first())) continue;
    const milliseconds delay = restarts_.DelayBefore(*next);
    messages_.Say(absl::StrCat("restart ", *next, " of ",
                               restarts_.max_restarts(), " in ",
                               delay.count() / 1000.0, " s"));
    if (!node_) plan_.restarts.done = *next;
    stop_signal_ = AwaitStopSignal(*signals_, delay);
    if (stop_signal_ != 0) {
      messages_.Say(absl::StrCat("stopped by ", SignalName(stop_signal_)));
      return EndWith(128 + stop_signal_, "node 0 was stopped");
    }
  }
}

}  // namespace

int RunLauncher(const LaunchPlan& plan, const std::vector<std::string>& argv,
                const LauncherOptions& options) {
  const IgnoreSigpipe no_sigpipe;
  Launcher launcher(plan, options, argv);
  const absl::Status started = launcher.Start();
  if (started.ok()) return launcher.Run();
  const bool is_stopped = absl::IsCancelled(started);
  WriteAsLauncher(absl::StrCat(is_stopped ? "" : "cannot start the ranks: ",
                               started.message()));
  return is_stopped ? 128 + launcher.stop_signal() : 1;
}

void WriteAsLauncher(const std::string& line) {
  OutputSink(STDERR_FILENO).WriteLine(absl::StrCat("tandem: ", line));
}

}  // namespace tandem
