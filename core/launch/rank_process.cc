#include "core/launch/rank_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/process/signal_thread.h"

namespace tandem {

absl::StatusOr<RankProcess> StartRankProcess(
    const LaunchPlan& plan, int local_rank, int port,
    const std::vector<std::string>& argv, const RankOutputs& outputs,
    int life) {
  using Stream = SubprocessOptions::Stream;
  const int rank = plan.launch.rank + local_rank;
  SubprocessOptions child;
  child.program = "/proc/self/exe";
  child.argv = argv;
  Environment environment =
      EnvironmentOfRank(plan, local_rank, port, Environment::OfProcess());
  environment.Set("TANDEM_RANK_LIFE", absl::StrCat(life));
  child.environment = environment.ToStrings();
  child.out = rank == 0 && !outputs.out->has_reader() ? Stream::kInherit
                                                      : Stream::kPipe;
  child.err = rank == 0 && outputs.err->is_terminal() ? Stream::kTerminal
                                                      : Stream::kPipe;
  TANDEM_ASSIGN_OR_RETURN(Subprocess process, Subprocess::Start(child));
  const std::string prefix =
      rank == 0 ? "" : absl::StrCat("[rank ", rank, "] ");
  OutputRelay out(process.out_fd(), outputs.out, prefix, outputs.last_lines);
  OutputRelay err(process.err_fd(), outputs.err, prefix, outputs.last_lines);
  return RankProcess{rank,           local_rank,     std::move(process),
                     std::move(out), std::move(err), std::nullopt};
}

int CountRunning(const std::vector<RankProcess>& ranks) {
  return static_cast<int>(std::count_if(
      ranks.begin(), ranks.end(),
      [](const RankProcess& rank) { return !rank.end.has_value(); }));
}

void SignalRunning(std::vector<RankProcess>& ranks, int signal) {
  for (RankProcess& rank : ranks) {
    if (!rank.end.has_value()) rank.process.Signal(signal);
  }
}

void StopRunning(std::vector<RankProcess>& ranks) {
  for (const RankProcess& rank : ranks) {
    const pid_t pid = rank.process.pid();
    if (!rank.end.has_value() && CatchesSignal(pid, SIGUSR2)) {
      kill(pid, SIGUSR2);
    }
  }
  SignalRunning(ranks, SIGTERM);
}

std::vector<RankProcess*> TakeEnded(std::vector<RankProcess>& ranks) {
  std::vector<RankProcess*> ended;
  for (RankProcess& rank : ranks) {
    if (rank.end.has_value()) continue;
    rank.end = rank.process.Poll();
    if (rank.end.has_value()) ended.push_back(&rank);
  }
  std::stable_partition(ended.begin(), ended.end(), [](RankProcess* rank) {
    return WIFSIGNALED(*rank->end);
  });
  return ended;
}

Environment EnvironmentOfRank(const LaunchPlan& plan, int local_rank, int port,
                              Environment base) {
  const Launch& first = plan.launch;
  const auto set = [&base](const char* name, int value) {
    base.Set(name, absl::StrCat(value));
  };
  set("RANK", first.rank + local_rank);
  set("WORLD_SIZE", first.world_size);
  set("LOCAL_RANK", local_rank);
  set("LOCAL_WORLD_SIZE", first.local_world_size);
  set("GROUP_RANK", first.node_rank);
  set("GROUP_WORLD_SIZE", first.nnodes);
  set("TORCHELASTIC_RESTART_COUNT", plan.restarts.done);
  set("TORCHELASTIC_MAX_RESTARTS", plan.restarts.most);
  base.Set("TORCHELASTIC_RUN_ID", "tandem");
  base.Set("TANDEM_LAUNCHER", "1");
  if (first.rendezvous.kind == Rendezvous::Kind::kTcp) {
    base.Set("TORCHELASTIC_USE_AGENT_STORE", "True");
    base.Set("MASTER_ADDR", first.rendezvous.host);
    set("MASTER_PORT", port);
  }
  return base;
}

absl::StatusOr<Launch> LaunchOfRank(const LaunchPlan& plan, int local_rank,
                                    int port) {
  TANDEM_ASSIGN_OR_RETURN(
      LaunchPlan resolved,
      ResolveLaunch({}, EnvironmentOfRank(plan, local_rank, port, {})));
  return resolved.launch;
}

}  // namespace tandem
