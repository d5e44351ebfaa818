#include "core/process/subprocess.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/owned_fd.h"
#include "core/base/status_macros.h"
#include "core/base/system_error.h"
#include "core/process/process_end.h"

namespace tandem {
namespace {

using Stream = SubprocessOptions::Stream;

absl::Status Failed(const char* what) {
  return SystemError(errno, absl::StrCat(what, " failed"));
}

// What the parent reads from, and what the child writes to.
struct Ends {
  OwnedFd parent;
  OwnedFd child;
};

absl::StatusOr<Ends> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Failed("pipe2");
  return Ends{OwnedFd(fds[0]), OwnedFd(fds[1])};
}

absl::StatusOr<Ends> MakeTerminal() {
  Ends ends;
  ends.parent = OwnedFd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int fd = ends.parent.get();
  char name[PATH_MAX];
  if (fd < 0 || grantpt(fd) != 0 || unlockpt(fd) != 0 ||
      ptsname_r(fd, name, sizeof(name)) != 0) {
    return Failed("opening a pseudo-terminal");
  }
  ends.child = OwnedFd(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios mode;
  if (ends.child.get() < 0 || tcgetattr(ends.child.get(), &mode) != 0) {
    return Failed("opening a pseudo-terminal");
  }
  cfmakeraw(&mode);  // else every newline would come out as two characters
  tcsetattr(ends.child.get(), TCSANOW, &mode);
  winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) {
    ioctl(fd, TIOCSWINSZ, &size);
  }
  return ends;
}

absl::StatusOr<Ends> MakeEnds(Stream stream) {
  if (stream == Stream::kInherit) return Ends{};
  TANDEM_ASSIGN_OR_RETURN(
      Ends ends, stream == Stream::kPipe ? MakePipe() : MakeTerminal());
  const int flags = fcntl(ends.parent.get(), F_GETFL);
  fcntl(ends.parent.get(), F_SETFL, flags | O_NONBLOCK);
  return ends;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) {
    result.push_back(const_cast<char*>(s.c_str()));
  }
  result.push_back(nullptr);
  return result;
}

// All that the child needs, made before the fork: between fork and exec a
// process that had threads may only make system calls.
struct ChildPlan {
  const char* program;
  std::vector<char*> argv;
  std::vector<char*> environment;
  int null_fd;
  int out_fd;
  int err_fd;
  int error_fd;
  pid_t parent;
};

[[noreturn]] void RunChild(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // it went before prctl
  dup2(plan.null_fd, STDIN_FILENO);
  if (plan.out_fd >= 0) dup2(plan.out_fd, STDOUT_FILENO);
  if (plan.err_fd >= 0) dup2(plan.err_fd, STDERR_FILENO);
  syscall(SYS_close_range, 3, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  struct sigaction ignored;
  // The parent may ignore SIGPIPE for its own sake; exec would keep that.
  if (sigaction(SIGPIPE, nullptr, &ignored) == 0 &&
      ignored.sa_handler == SIG_IGN) {
    signal(SIGPIPE, SIG_DFL);
  }
  execve(plan.program, plan.argv.data(), plan.environment.data());
  const int error = errno;
  // Nobody is left to tell if this fails.
  if (write(plan.error_fd, &error, sizeof(error)) < 0) _exit(126);
  _exit(127);
}

// Waits until the child has executed its program, or returns why it did not.
absl::Status AwaitExec(int error_fd, const std::string& program) {
  int error = 0;
  ssize_t got;
  do {
    got = read(error_fd, &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got != sizeof(error)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("cannot execute ", program, ": ",
                   absl::ErrnoToStatus(error, "execve").message()));
}

}  // namespace

absl::StatusOr<Subprocess> Subprocess::Start(const SubprocessOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(Ends out, MakeEnds(options.out));
  TANDEM_ASSIGN_OR_RETURN(Ends err, MakeEnds(options.err));
  TANDEM_ASSIGN_OR_RETURN(Ends error, MakePipe());
  const OwnedFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const ChildPlan plan = {options.program.c_str(),
                          Pointers(options.argv),
                          Pointers(options.environment),
                          null.get(),
                          out.child.get(),
                          err.child.get(),
                          error.child.get(),
                          getpid()};
  const pid_t pid = fork();
  if (pid < 0) return StartError(errno, "fork failed");
  if (pid == 0) RunChild(plan);
  setpgid(pid, pid);  // whoever comes first: a signal may be sent at once
  error.child = OwnedFd();
  Subprocess child(pid, out.parent.Release(), err.parent.Release());
  TANDEM_RETURN_IF_ERROR(AwaitExec(error.parent.get(), options.program));
  return child;
}

Subprocess::Subprocess(Subprocess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_fd_(std::exchange(other.out_fd_, -1)),
      err_fd_(std::exchange(other.err_fd_, -1)),
      end_(std::exchange(other.end_, std::nullopt)) {}

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(out_fd_, other.out_fd_);
  std::swap(err_fd_, other.err_fd_);
  std::swap(end_, other.end_);
  return *this;
}

Subprocess::~Subprocess() {
  if (pid_ > 0) Stop(std::chrono::milliseconds(0));
  if (out_fd_ >= 0) close(out_fd_);
  if (err_fd_ >= 0) close(err_fd_);
}

std::optional<int> Subprocess::Poll() {
  if (end_.has_value()) return end_;
  siginfo_t info = {};
  if (waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    // Where SIGCHLD is ignored nothing is left to reap. The number may be
    // somebody else's by now, so the group is left alone.
    if (errno == ECHILD) end_ = kUnknownEnd;
    return end_;
  }
  if (info.si_pid == 0) return std::nullopt;
  // Until it is reaped its number, and so its group's, is nobody else's.
  kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  end_ = status;
  return end_;
}

std::optional<int> Subprocess::Wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!Poll().has_value()) {
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return end_;
}

void Subprocess::Signal(int signal) {
  if (!Poll().has_value()) kill(-pid_, signal);
}

int Subprocess::Stop(std::chrono::milliseconds grace) {
  if (grace.count() > 0) {
    Signal(SIGTERM);
    if (Wait(grace).has_value()) return *end_;
  }
  Signal(SIGKILL);
  while (!Wait(std::chrono::seconds(1)).has_value()) {
  }
  return *end_;
}

}  // namespace tandem
