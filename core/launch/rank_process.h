// Rank process: one rank as its launcher sees it.

#ifndef TANDEM_CORE_LAUNCH_RANK_PROCESS_H_
#define TANDEM_CORE_LAUNCH_RANK_PROCESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/environment.h"
#include "core/launch/launch.h"
#include "core/launch/output_relay.h"
#include "core/launch/resolve_launch.h"
#include "core/process/subprocess.h"

namespace tandem {

struct RankProcess {
  int rank;
  int local_rank;
  Subprocess process;
  OutputRelay out;
  OutputRelay err;
  std::optional<int> end;  // wait status
};

// Where ranks' output goes, and how much of it is remembered.
struct RankOutputs {
  OutputSink* out;
  OutputSink* err;
  int last_lines;
};

// Runs /proc/self/exe as local rank `local_rank` of `plan`. `port` is the
// store's. Rank 0 of the job writes to this process's stdout itself unless
// `outputs.out` is a pipe or a socket, whose reader may stand still, and to a
// terminal if `outputs.err` is one. `life`: how many processes of this rank
// came before in this attempt (TANDEM_RANK_LIFE).
absl::StatusOr<RankProcess> StartRankProcess(
    const LaunchPlan& plan, int local_rank, int port,
    const std::vector<std::string>& argv, const RankOutputs& outputs,
    int life = 0);

int CountRunning(const std::vector<RankProcess>& ranks);
// To those that run.
void SignalRunning(std::vector<RankProcess>& ranks, int signal);
// SIGTERM, after SIGUSR2 to those that write a flight dump then
// (core/flight/dump_file.h), and would not die of it.
void StopRunning(std::vector<RankProcess>& ranks);
// Notes the ends of those that have ended since the last call, and returns
// them. One that a signal killed comes first among several: it is more likely
// the cause than one that exited because it lost the other.
std::vector<RankProcess*> TakeEnded(std::vector<RankProcess>& ranks);

// The environment of rank `local_rank`, from the launcher's: torchrun's
// variables and TANDEM_LAUNCHER. The inverse of ResolveLaunch.
Environment EnvironmentOfRank(const LaunchPlan& plan, int local_rank, int port,
                              Environment base);

// What rank `local_rank` of this node finds out about itself when it is started
// with the store at `port`. `plan`: one with is_launcher.
absl::StatusOr<Launch> LaunchOfRank(const LaunchPlan& plan, int local_rank,
                                    int port);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_RANK_PROCESS_H_
