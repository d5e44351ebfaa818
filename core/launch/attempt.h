// Attempt of a node: its ranks, started together and looked after until all
// have ended.

#ifndef TANDEM_CORE_LAUNCH_ATTEMPT_H_
#define TANDEM_CORE_LAUNCH_ATTEMPT_H_

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/launch/launcher_messages.h"
#include "core/launch/launcher_options.h"
#include "core/launch/rank_process.h"
#include "core/launch/replacements.h"
#include "core/launch/resolve_launch.h"
#include "core/process/signal_pipe.h"

namespace tandem {

struct AttemptEnd {
  // 0, or that of the rank that died first, as a shell has it.
  int exit_code = 0;
  // The first signal that the user stopped it with; 0: none.
  int stop_signal = 0;
  // What ended it, where exit_code is not 0: "rank 1 of 2 died: exit code 3: "
  // and what the rank said last.
  std::string cause;
};

// Whether a signal asks ranks to end.
bool StopsRanks(int signal);

// Not thread-safe.
class Attempt {
 public:
  // `plan.restarts.done` says which. `port`: the store's. All must outlive
  // it.
  Attempt(const LaunchPlan& plan, int port, const LauncherOptions& options,
          SignalPipe* signals, LauncherMessages* messages);
  // Kills what still runs.
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  absl::Status Start(const std::vector<std::string>& argv,
                     const RankOutputs& outputs);
  // Until all ranks have ended.
  AttemptEnd Run();

 private:
  using Clock = std::chrono::steady_clock;

  int PollTimeout() const;
  void AwaitEvents();
  void HandleSignals();
  void Stop(int signal);
  void Suspend();
  bool GoesOnWithout(const RankProcess& dead) const;
  bool Replaces(RankProcess& dead);
  void StartDue();
  void HandleEnds(const std::vector<RankProcess*>& ended);
  void HandleFirstDeath(RankProcess& dead);
  void TellNodes(const RankProcess& dead);
  void KillWhenOverdue();

  const LaunchPlan& plan_;
  const int port_;
  const LauncherOptions& options_;
  SignalPipe* const signals_;
  LauncherMessages* const messages_;
  std::vector<std::string> argv_;
  std::optional<RankOutputs> outputs_;
  std::vector<RankProcess> ranks_;
  Replacements replacements_;
  std::thread telling_;  // the other nodes
  AttemptEnd end_;
  bool stopping_ = false;                     // because of a death
  std::optional<Clock::time_point> kill_at_;  // who still runs then
};

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_ATTEMPT_H_
