// Launcher: starts this program once for each rank of a node and supervises the
// ranks (torchrun for one binary).

#ifndef TANDEM_CORE_LAUNCH_LAUNCHER_H_
#define TANDEM_CORE_LAUNCH_LAUNCHER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/elastic/node_group.h"
#include "core/elastic/rank_counts.h"
#include "core/launch/launch.h"
#include "core/launch/resolve_launch.h"

namespace tandem {

// What a launcher of ranks is told beside its plan.
struct LauncherOptions {
  // Starts to serve the store where ranks meet, until the process ends, at
  // `host` and `port` (0: any that is free); returns the port. Called by node
  // 0's launcher, so that the store outlives every rank and rank 0's death can
  // be told too. Not called for a rendezvous by file. Called on a thread of its
  // own, and left there where a signal ends the launcher meanwhile: it must own
  // all that it uses.
  std::function<absl::StatusOr<int>(const std::string& host, int port)>
      serve_store;
  // Tells the job's other nodes that `rank` of this one has died, and how
  // ("killed by signal 9 (SIGKILL)"); may take seconds. Called once at most, on
  // a thread of its own, where a job of several nodes meets at a TCPStore.
  // Null: they find out through their connections, if they have any yet.
  std::function<void(const Launch& rank, const std::string& how)> tell_nodes;
  // Whether the job goes on without that rank of it, whose death then stops
  // nobody and does not count, unless it is the last of that kind on the only
  // node. One that a stop signal has ended stops all. Null: without none.
  std::function<bool(int rank)> can_be_lost;
  // How often, all ranks together, one that died is started again while the
  // others go on, with the environment's TANDEM_RANK_LIFE one more. Every death
  // beyond, and one after which the job does not go on, ends the attempt.
  int max_replacements = 0;
  // Tells the job that life `life` (from 0) of `rank` has ended, and how;
  // returns whether the others go on. Needed where there are replacements.
  std::function<bool(const Launch& rank, int life, const std::string& how)>
      lose;
  // How long ranks have to end after SIGTERM when one has died.
  std::chrono::milliseconds death_grace = std::chrono::seconds(5);
  // How long ranks have to end after SIGINT, SIGTERM or SIGHUP was passed on,
  // unless a death has set an earlier end. SIGUSR1, by which a scheduler tells
  // of an end that it sets itself, has none.
  std::chrono::milliseconds stop_grace = std::chrono::seconds(30);
  // How long ranks have to end after a step where more nodes are to take part,
  // or one of them was sent SIGUSR1 itself: nothing presses, and a step with
  // its checkpoint may be long.
  std::chrono::milliseconds room_grace = std::chrono::minutes(30);
  // How many lines of a dead rank's stderr to repeat.
  int last_lines = 20;
  // The exit code of a rank that refused what the user gave: it would again, so
  // it is not started anew. 0: none is.
  int refusal_code = 0;
  // How long to wait before the first restart; each further one waits twice as
  // long as the one before, up to a minute.
  std::chrono::milliseconds restart_delay = std::chrono::seconds(1);
  // Which attempt this node's ranks are started for after attempt `failed`
  // (from 0) has ended, the same on all nodes. Called where a job of several
  // nodes meets at a TCPStore. Null: the next one.
  std::function<absl::StatusOr<int>(const Launch& node, int failed)>
      next_attempt;
  // With how many ranks a job may run; none: the number never changes.
  std::optional<RankCounts> rank_counts;
  // Names what the job would go on from, "" before there is anything: another
  // name than before is progress, for an elastic job. Null: always "".
  std::function<std::string()> progress;
  // Meets the launchers of an elastic job's other nodes; `node`: this one's,
  // whose store is at `port`. Called at most once, where nodes may be several.
  // Null: the nodes are always the same.
  std::function<std::unique_ptr<NodeRendezvous>(const Launch& node, int port)>
      meet_nodes;
};

// Runs the ranks of `plan` (one with is_launcher) and returns what the program
// should exit with once all have ended: 0 if all exited with 0, else the exit
// code of the rank that died first, 128 + the number if by a signal, or 1 when
// they could not be started; ranks that can be lost do not count. `argv` (with
// the program's name) is what they get.
//
// When one has died, and all have been stopped, all are started again, up to
// plan.restarts.most times (ReadRestartCount tells a rank which time it is);
// what counts then is the last attempt. After the last one, stderr has the
// causes of all. Nobody is started again after a signal that stops, or after a
// rank that refused what the user gave.
//
// Ranks run /proc/self/exe with torchrun's variables. Rank 0 of the job writes
// to this process's stdout itself where that is a file or a terminal, and else
// through it, for the reader of a pipe may stand still; and to its stderr
// through it, as a terminal if it is one. The others' output comes line by line
// behind "[rank 3] ".
//
// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on, the first four as
// a wish to stop; one of the first three again, kSignalEcho later or more
// (core/process/signal_thread.h), kills. SIGTSTP stops the ranks and then this
// process, and they go on when it does. When a rank dies, stderr says which and
// how, with its last lines; the others are stopped. If this process is killed,
// so are the ranks.
//
// Takes over those signals, SIGCHLD and SIGPIPE while it runs. Call from the
// main thread, at most once at a time.
int RunLauncher(const LaunchPlan& plan, const std::vector<std::string>& argv,
                const LauncherOptions& options);

// Writes "tandem: LINE" to stderr, as a launcher does. For what is told beside
// it, on any thread.
void WriteAsLauncher(const std::string& line);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_LAUNCHER_H_
