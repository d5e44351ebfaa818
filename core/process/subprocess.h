// Subprocess: a child process that runs a program, and goes when its parent
// goes.

#ifndef TANDEM_CORE_PROCESS_SUBPROCESS_H_
#define TANDEM_CORE_PROCESS_SUBPROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

struct SubprocessOptions {
  enum class Stream {
    kInherit,   // the parent's own
    kPipe,      // read by the parent from out_fd() or err_fd()
    kTerminal,  // the same, but the child sees a terminal of the size of the
                // parent's (a pseudo-terminal in raw mode)
  };
  std::string program;                   // path; no search in PATH
  std::vector<std::string> argv;         // argv[0] too
  std::vector<std::string> environment;  // NAME=value
  Stream out = Stream::kInherit;
  Stream err = Stream::kInherit;
};

// The child reads /dev/null, leads a process group of its own (so that a
// terminal's Ctrl-C does not reach it, and signals below reach its children
// too), gets no other file descriptors, and is killed when the thread that
// started it ends, however that came about. Its own children are killed with it
// once this object learns of its end; if this process was itself killed, they
// are left to it.
//
// Not thread-safe. Start may be called in a process that has threads.
class Subprocess {
 public:
  // Internal when a system call fails; NotFound, naming the program, when it
  // cannot be executed.
  static absl::StatusOr<Subprocess> Start(const SubprocessOptions& options);

  // Kills what still runs.
  ~Subprocess();
  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;

  pid_t pid() const { return pid_; }
  // Non-blocking; -1 for a stream that is inherited.
  int out_fd() const { return out_fd_; }
  int err_fd() const { return err_fd_; }

  // The child's wait status once it has ended (see process_end.h): kUnknownEnd
  // where this process ignores SIGCHLD; its own children are then left alone.
  std::optional<int> Poll();
  std::optional<int> Wait(std::chrono::milliseconds timeout);

  // To the child's whole process group; nothing when the child has ended.
  void Signal(int signal);

  // SIGTERM, and SIGKILL when that did not end it within `grace`.
  int Stop(std::chrono::milliseconds grace);

 private:
  Subprocess(pid_t pid, int out_fd, int err_fd)
      : pid_(pid), out_fd_(out_fd), err_fd_(err_fd) {}

  pid_t pid_;
  int out_fd_;
  int err_fd_;
  std::optional<int> end_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_PROCESS_SUBPROCESS_H_
