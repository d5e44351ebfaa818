// How a process ended, from the status that waitpid gives.

#ifndef TANDEM_CORE_PROCESS_END_H_
#define TANDEM_CORE_PROCESS_END_H_

#include <string>

namespace tandem {

// "exit code 3", or "killed by signal 9 (SIGKILL)".
std::string DescribeEnd(int wait_status);

// The exit code, or 128 + the signal's number, as a shell has it.
int ShellExitCode(int wait_status);

// "SIGKILL" for 9; "signal 77" where there is no name.
std::string SignalName(int signal);

}  // namespace tandem

#endif  // TANDEM_CORE_PROCESS_END_H_
