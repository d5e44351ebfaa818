// Attempt of a node: its ranks, started together and looked after until all
// have ended.

#ifndef TANDEM_CORE_LAUNCH_ATTEMPT_H_
#define TANDEM_CORE_LAUNCH_ATTEMPT_H_

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/launch/elastic_node.h"
#include "core/launch/launcher.h"
#include "core/launch/launcher_messages.h"
#include "core/launch/rank_process.h"
#include "core/launch/resolve_launch.h"
#include "core/launch/restarts.h"
#include "core/launch/stop_signals.h"

namespace tandem {

struct AttemptEnd {
  // 0, or that of the rank that died first, as a shell has it.
  int exit_code = 0;
  // The first signal that the user stopped it with; 0: none.
  int stop_signal = 0;
  // What ended it, where exit_code is not 0: "rank 1 of 2 died: exit code 3: "
  // and what the rank said last.
  std::string cause;
  // The last line of a rank that ended by itself, with an exit code; empty: it
  // was killed, or has said nothing.
  std::string error;
  int started = 0;                // ranks of this node
  std::optional<int> first_dead;  // the rank; none: not all were started
  // Its ranks stopped after a step, for more nodes to take part in the next
  // attempt: had by this launcher, or by another node's, which was heard of by
  // their end (SIGUSR1) alone.
  bool makes_room = false;
  // The signal came when a death was already ending it.
  bool died_first = false;
};

// Not thread-safe.
class Attempt {
 public:
  // `plan.restarts.done` says which. `port`: the store's. `node`: of an elastic
  // job of several nodes, else null. All must outlive it.
  Attempt(const LaunchPlan& plan, int port, const LauncherOptions& options,
          SignalPipe* signals, LauncherMessages* messages,
          const ElasticNode* node);
  // Kills what still runs.
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  absl::Status Start(const std::vector<std::string>& argv,
                     const RankOutputs& outputs);
  // Until all ranks have ended.
  AttemptEnd Run();
  // How many Start has started.
  int started() const { return end_.started; }

 private:
  using Clock = std::chrono::steady_clock;

  // Because of a death, or of a signal.
  bool Stops() const { return stopping_ || end_.stop_signal != 0; }
  int PollTimeout() const;
  void AwaitEvents();
  void HandleSignals();
  void Stop(int signal);
  void NoteStop(int signal);
  void FollowStop(const RankProcess& rank, int signal);
  void StopTogether(int signal, const std::string& why);
  std::chrono::milliseconds GraceAfter(int signal) const;
  void KillAfter(std::chrono::milliseconds grace);
  bool ToleratesLoss(const RankProcess& dead) const;
  bool Replaces(RankProcess& dead);
  void StartDue();
  void HandleEnds(std::vector<RankProcess*> ended);
  bool HasStopped(const RankProcess& rank) const;
  void NoteEnd(RankProcess& rank, bool died);
  void HandleFirstDeath(RankProcess& dead);
  void NotifyNodes(const RankProcess& dead);
  void FollowOrder();
  void StopAll();
  void KillWhenOverdue();

  const LaunchPlan& plan_;
  const int port_;
  const LauncherOptions& options_;
  SignalPipe* const signals_;
  LauncherMessages* const messages_;
  const ElasticNode* const node_;
  std::vector<std::string> argv_;
  std::optional<RankOutputs> outputs_;
  std::vector<RankProcess> ranks_;
  Replacements replacements_;
  std::thread telling_;  // the other nodes
  AttemptEnd end_;
  bool stopping_ = false;  // because of a death
  // The signal by which all ranks of an elastic job of several nodes stop after
  // a step, to go on with other nodes; 0: they run.
  int agreed_ = 0;
  // When this launcher was sent the first of each signal.
  std::map<int, Clock::time_point> stopped_at_;
  std::optional<Clock::time_point> kill_at_;  // ranks that still run then
};

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_ATTEMPT_H_
