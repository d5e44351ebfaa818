// Launcher options: what a launcher of ranks is told beside its plan.

#ifndef TANDEM_CORE_LAUNCH_LAUNCHER_OPTIONS_H_
#define TANDEM_CORE_LAUNCH_LAUNCHER_OPTIONS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/elastic/node_group.h"
#include "core/elastic/rank_counts.h"
#include "core/launch/launch.h"

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_LAUNCHER_OPTIONS_H_
