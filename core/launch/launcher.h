// Starts this program once for each rank of a node and looks after the ranks:
// torchrun for one binary.

#ifndef TANDEM_CORE_LAUNCH_LAUNCHER_H_
#define TANDEM_CORE_LAUNCH_LAUNCHER_H_

#include <string>
#include <vector>

#include "core/launch/launcher_options.h"
#include "core/launch/resolve_launch.h"

namespace tandem {

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
void SayAsLauncher(const std::string& line);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_LAUNCHER_H_
