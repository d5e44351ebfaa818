#include "core/process/process_end.h"

#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem {

bool HasEnded(pid_t pid, int options, int* end) {
  pid_t got;
  do {
    got = waitpid(pid, end, options);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == ECHILD) {
    *end = kUnknownEnd;
    return true;
  }
  return got == pid;
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  if (name == nullptr) return absl::StrCat("signal ", signal);
  return absl::StrCat("SIG", name);
}

std::string DescribeEnd(int wait_status) {
  if (wait_status == kUnknownEnd) {
    return "ended, how is not known (this process ignores SIGCHLD)";
  }
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return absl::StrCat("killed by signal ", signal, " (", SignalName(signal),
                        ")");
  }
  return absl::StrCat("exit code ", WEXITSTATUS(wait_status));
}

int ShellExitCode(int wait_status) {
  if (wait_status == kUnknownEnd) return 255;
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

}  // namespace tandem
