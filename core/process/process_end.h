// Exit of a process: how it ended, from the status that waitpid gives.

#ifndef TANDEM_CORE_PROCESS_PROCESS_END_H_
#define TANDEM_CORE_PROCESS_PROCESS_END_H_

#include <sys/types.h>

#include <string>

namespace tandem {

// In the place of a wait status: the process has ended, but nobody can tell
// how. So it is where a process ignores SIGCHLD: the kernel forgets its
// children.
constexpr int kUnknownEnd = -1;

// waitpid with WNOHANG or 0 in `options`, not cut short by signals: whether
// this process's child has ended, and in `*end` how (kUnknownEnd if it is
// gone).
bool HasEnded(pid_t pid, int options, int* end);

// "exit code 3", or "killed by signal 9 (SIGKILL)".
std::string DescribeEnd(int wait_status);

// The exit code, or 128 + the signal's number, as a shell has it; 255 for an
// unknown end.
int ShellExitCode(int wait_status);

// "SIGKILL" for 9; "signal 77" where there is no name.
std::string SignalName(int signal);

}  // namespace tandem

#endif  // TANDEM_CORE_PROCESS_PROCESS_END_H_
