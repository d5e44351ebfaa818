// Launcher messages: what a launcher tells of its ranks, on its stderr.

#ifndef TANDEM_CORE_LAUNCH_LAUNCHER_MESSAGES_H_
#define TANDEM_CORE_LAUNCH_LAUNCHER_MESSAGES_H_

#include <string>
#include <vector>

#include "core/launch/launch.h"
#include "core/launch/output_relay.h"
#include "core/launch/rank_process.h"
#include "core/launch/restarts.h"

namespace tandem {

// Every message is a line that begins with "tandem: ", but for what a rank
// itself wrote, which is indented. Ranks that are told of have ended, except
// one that is killed.
class LauncherMessages {
 public:
  // `launch`: this node's. Both must outlive this.
  LauncherMessages(const Launch& launch, OutputSink* err)
      : launch_(launch), err_(err) {}

  void Say(const std::string& line);
  // The first to die, and its last lines, unless it has written only why it
  // exits, just now; `running` others are to be stopped.
  void Died(RankProcess& dead, int running);
  // One that the others go on without, and its last lines.
  void Lost(RankProcess& dead);
  // A line, and below it what ended each.
  void History(const std::string& head, const std::vector<std::string>& causes);
  // After another died, by an end of its own.
  void EndedAfterwards(const RankProcess& rank);
  // Ranks were asked to stop by a signal: only another end than that is news.
  void Stopped(const RankProcess& rank, int stop_signal);
  // One was sent that signal, and has stopped the others with it.
  void StoppedByItself(const RankProcess& rank, int signal);
  void IsKilled(const RankProcess& rank);

  // Says that there are no more restarts, and what ended each attempt.
  void GivesUp(const Restarts& restarts);

  // In a line: "rank 1 of 2 (pid 4711) died: exit code 3: " and the last line
  // that it wrote.
  std::string DeathCause(RankProcess& dead) const;
  // The last line of a dead rank; "" where there is none.
  std::string LastLine(RankProcess& dead) const;

 private:
  void LastLines(RankProcess& dead);
  std::string Name(const RankProcess& rank) const;

  const Launch& launch_;
  OutputSink* const err_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_LAUNCHER_MESSAGES_H_
