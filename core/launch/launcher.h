// Starts this program once for each rank of a node and looks after the ranks:
// torchrun for one binary.

#ifndef TANDEM_CORE_LAUNCH_LAUNCHER_H_
#define TANDEM_CORE_LAUNCH_LAUNCHER_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/launch/resolve_launch.h"

namespace tandem {

struct LauncherOptions {
  // Starts to serve the store where ranks meet, until the process ends, at
  // `host` and `port` (0: any that is free); returns the port. Called by node
  // 0's launcher, so that the store outlives every rank and rank 0's death can
  // be told too. Not called for a rendezvous by file.
  std::function<absl::StatusOr<int>(const std::string& host, int port)>
      serve_store;
  // Tells the job's other nodes that `rank` of this one has died, and how
  // ("killed by signal 9 (SIGKILL)"); may take seconds. Called once at most, on
  // a thread of its own, where a job of several nodes meets at a TCPStore.
  // Null: they find out through their connections, if they have any yet.
  std::function<void(const Launch& rank, const std::string& how)> tell_nodes;
  // Whether the job goes on without that rank of it, whose death then stops
  // nobody and does not count, unless it is the last of that kind on the only
  // node. Null: without none.
  std::function<bool(int rank)> can_be_lost;
  // How long ranks have to end after SIGTERM when one has died.
  std::chrono::milliseconds death_grace = std::chrono::seconds(5);
  // How long ranks have to end after SIGINT, SIGTERM or SIGHUP was passed on,
  // unless a death has set an earlier end.
  std::chrono::milliseconds stop_grace = std::chrono::seconds(30);
  // How many lines of a dead rank's stderr to repeat.
  int last_lines = 20;
};

// What rank `local_rank` of this node finds out about itself when it is started
// with the store at `port`. `plan`: one with is_launcher.
absl::StatusOr<Launch> LaunchOfRank(const LaunchPlan& plan, int local_rank,
                                    int port);

// Runs the ranks of `plan` (one with is_launcher) and returns what the program
// should exit with once all have ended: 0 if all exited with 0, else the exit
// code of the rank that died first, 128 + the number if by a signal, or 1 when
// they could not be started; ranks that can be lost do not count. `argv` (with
// the program's name) is what they get.
//
// Ranks run /proc/self/exe with torchrun's variables. Rank 0 of the job writes
// to this process's stdout itself, and to its stderr through it, as a terminal
// if it is one; the others' output comes line by line behind "[rank 3] ".
//
// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on; a second of the
// first three kills. SIGTSTP stops the ranks and then this process, and they go
// on when it does. When a rank dies, stderr says which and how, with its last
// lines; the others are stopped. If this process is killed, so are the ranks.
//
// Takes over those signals, SIGCHLD and SIGPIPE while it runs. Call from the
// main thread, at most once at a time.
int RunLauncher(const LaunchPlan& plan, const std::vector<std::string>& argv,
                const LauncherOptions& options);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_LAUNCHER_H_
