#include "core/launch/launcher_messages.h"

#include <sys/wait.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "core/process/process_end.h"

namespace tandem {

void LauncherMessages::Say(const std::string& line) {
  err_->WriteLine(absl::StrCat("tandem: ", line));
}

void LauncherMessages::LastLines(RankProcess& dead) {
  const std::vector<std::string> all = dead.err.LastLinesRead();
  if (all.empty()) {
    Say("it had written nothing to stderr");
    return;
  }
  // A rank that exits has said why, right above.
  const std::vector<std::string> lines =
      WIFEXITED(*dead.end) ? dead.err.LastLinesOutOfSight() : all;
  if (lines.empty()) return;
  Say(lines.size() == all.size() ? "its last error lines:"
                                 : "its error lines before those above:");
  for (const std::string& line : lines) {
    err_->WriteLine(absl::StrCat("    ", line));
  }
}

void LauncherMessages::Died(RankProcess& dead, int running) {
  dead.out.Finish();
  dead.err.Finish();
  Say(absl::StrCat(Name(dead), " died: ", DescribeEnd(*dead.end)));
  LastLines(dead);
  if (running == 0) return;
  Say(absl::StrCat("stopping the ", running, " that still ",
                   running == 1 ? "runs" : "run", " on this node"));
}

void LauncherMessages::Lost(RankProcess& dead) {
  dead.out.Finish();
  dead.err.Finish();
  Say(absl::StrCat(Name(dead), " died: ", DescribeEnd(*dead.end),
                   "; the other ranks go on without it"));
  LastLines(dead);
}

void LauncherMessages::History(const std::string& head,
                               const std::vector<std::string>& causes) {
  Say(head);
  for (const std::string& cause : causes) {
    err_->WriteLine(absl::StrCat("    ", cause));
  }
}

void LauncherMessages::EndedAfterwards(const RankProcess& rank) {
  Say(absl::StrCat(Name(rank), " then ended too: ", DescribeEnd(*rank.end)));
}

void LauncherMessages::Stopped(const RankProcess& rank, int stop_signal) {
  if (!WIFSIGNALED(*rank.end) || WTERMSIG(*rank.end) == stop_signal) return;
  Say(absl::StrCat(Name(rank), " ended: ", DescribeEnd(*rank.end)));
}

void LauncherMessages::StoppedByItself(const RankProcess& rank, int signal) {
  Say(absl::StrCat(Name(rank), " was stopped by ", SignalName(signal),
                   ", and the job with it"));
}

void LauncherMessages::IsKilled(const RankProcess& rank) {
  Say(absl::StrCat(Name(rank), " did not stop and is killed"));
}

void LauncherMessages::GivesUp(const Restarts& restarts) {
  const int most = restarts.max_restarts();
  History(absl::StrCat("gives up after ", most,
                       most == 1 ? " restart" : " restarts",
                       "; what ended each attempt:"),
          restarts.history());
}

std::string LauncherMessages::DeathCause(RankProcess& dead) const {
  const std::string line = LastLine(dead);
  return absl::StrCat(Name(dead), " died: ", DescribeEnd(*dead.end),
                      line.empty() ? "" : ": ", line);
}

std::string LauncherMessages::LastLine(RankProcess& dead) const {
  dead.err.Finish();
  const std::vector<std::string> lines = dead.err.LastLinesRead();
  return lines.empty() ? "" : lines.back();
}

std::string LauncherMessages::Name(const RankProcess& rank) const {
  std::string where = absl::StrCat("pid ", rank.process.pid());
  if (launch_.nnodes > 1) {
    where = absl::StrCat("node ", launch_.node_rank, ", local rank ",
                         rank.local_rank, ", ", where);
  }
  return absl::StrCat("rank ", rank.rank, " of ", launch_.world_size, " (",
                      where, ")");
}

}  // namespace tandem
