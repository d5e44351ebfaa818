// Entry of a program of several ranks: what torchrun and a script's main are in
// PyTorch, in one call.
//
// core/run/run_program.h is the one for programs that need nothing special.

#ifndef TANDEM_CORE_RUN_RUN_RANKS_H_
#define TANDEM_CORE_RUN_RUN_RANKS_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/launch/launch.h"
#include "core/program/flag_guide.h"

namespace tandem {

struct RanksProgram {
  // What its messages begin with, and its log files: "train".
  std::string name;
  // What --help says of the flags; LaunchFlags() (core/launch/flags.h) are a
  // group of them.
  FlagGuide flags;
  // Checks the flags, of which the values are there, before any rank is
  // started: so there is one line, not one a rank. `first` is this process's
  // place, or that of the first rank that it will start. May be null.
  std::function<absl::Status(const Launch& first)> check;
  // One rank. Nothing is connected yet.
  std::function<absl::Status(const Launch& launch)> run;
  // Whether the job goes on without that rank (LauncherOptions::can_be_lost);
  // asked when the flags have been parsed. May be null.
  std::function<bool(int rank)> can_be_lost;
  // What the job would go on from if it were started again
  // (LauncherOptions::progress); asked when the flags have been parsed. May be
  // null.
  std::function<std::string()> progress = nullptr;
  // How often ranks that die are replaced while the others go on
  // (core/replace/job_member.h); asked at the same time. Null: never.
  std::function<int()> max_replacements = nullptr;
  // What is done where `check` is content, and no rank is started; asked after
  // it, of every process of the job. Nothing: ranks are. May be null.
  std::function<std::optional<absl::Status>(const Launch& first)> instead =
      nullptr;
};

// What main returns. Call it before any thread is started: no thread but the
// signal thread (core/process/signal_thread.h) is interrupted by signals then.
// Parses the command line (the flags that place ranks,
// --nproc_per_node and the others of docs/launching.md, come with this
// library), and is the launcher of this node's ranks or one of them, as flags
// and environment say. An error is one line on stderr; what this process
// refuses, other nodes' ranks are told.
//
// 0: all went well; 2 and 1: StatusExitCode (core/program/exit_code.h). 128 +
// the signal: HandleInterrupts was called, and a signal came. A launcher
// returns what RunLauncher does.
int RunRanks(int argc, char** argv, const RanksProgram& program);

}  // namespace tandem

#endif  // TANDEM_CORE_RUN_RUN_RANKS_H_
