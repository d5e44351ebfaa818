#include "core/process/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/system_error.h"
#include "core/process/process_end.h"
#include "core/process/signal_thread.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// How long to wait between looks at ranks whose pipe something else holds open.
constexpr std::chrono::milliseconds kTick(50);

// But for the signal thread: forked children have their signals back.
int CountThreads() {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return 1;
  int count = 0;
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(tasks);
  return HasSignalThread() ? count - 1 : count;
}

absl::Status CallGuarded(absl::FunctionRef<absl::Status(int rank)> fn,
                         int rank) {
  try {
    return fn(rank);
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("exception: ", e.what()));
  } catch (...) {
    return absl::InternalError("an exception that is no std::exception");
  }
}

// What a child tells: the status's code as one byte, then its message.
void WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return;
    bytes.remove_prefix(std::max<ssize_t>(0, written));
  }
}

[[noreturn]] void RunChild(absl::FunctionRef<absl::Status(int rank)> fn,
                           int rank, int fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it went before prctl
  const absl::Status status = CallGuarded(fn, rank);
  std::fflush(nullptr);
  std::string told(1, static_cast<char>(status.raw_code()));
  absl::StrAppend(&told, status.message());
  WriteAll(fd, told);
  _exit(status.ok() ? 0 : 1);
}

class Ranks {
 public:
  ~Ranks() { Stop(std::chrono::milliseconds(0)); }

  absl::Status Start(absl::FunctionRef<absl::Status(int rank)> fn, int nprocs) {
    std::fflush(nullptr);  // else children would print what is buffered again
    for (int rank = 0; rank < nprocs; ++rank) {
      TANDEM_RETURN_IF_ERROR(StartOne(fn, rank));
    }
    return absl::OkStatus();
  }

  // Waits for all; returns the first failure there is.
  absl::Status Join(const SpawnOptions& options) {
    const auto start = Clock::now();
    while (!Running().empty()) {
      if (options.timeout.has_value() &&
          Clock::now() - start >= *options.timeout) {
        return Overdue(*options.timeout);
      }
      AwaitNews();
      TANDEM_RETURN_IF_ERROR(Collect());
    }
    return absl::OkStatus();
  }

  // SIGTERM, and SIGKILL to those that still run after `grace`.
  void Stop(std::chrono::milliseconds grace) {
    const auto deadline = Clock::now() + grace;
    for (Rank* rank : Running()) kill(rank->pid, SIGTERM);
    while (!Running().empty() && Clock::now() < deadline) {
      AwaitNews();
      Collect().IgnoreError();  // the first failure is what counts
    }
    for (Rank* rank : Running()) {
      kill(rank->pid, SIGKILL);
      int end = 0;
      HasEnded(rank->pid, 0, &end);
      Close(*rank);
    }
  }

 private:
  struct Rank {
    int number;
    pid_t pid;
    int fd;
    std::string told;
    bool running = true;
  };

  absl::Status StartOne(absl::FunctionRef<absl::Status(int rank)> fn,
                        int number) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return SystemError(errno, "pipe2");
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      close(fds[0]);
      RunChild(fn, number, fds[1], parent);
    }
    close(fds[1]);
    if (pid < 0) {
      close(fds[0]);
      return StartError(errno,
                        absl::StrCat("cannot start rank ", number, ": fork"));
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    ranks_.push_back({number, pid, fds[0], ""});
    return absl::OkStatus();
  }

  std::vector<Rank*> Running() {
    std::vector<Rank*> result;
    for (Rank& rank : ranks_) {
      if (rank.running) result.push_back(&rank);
    }
    return result;
  }

  void AwaitNews() {
    std::vector<pollfd> fds;
    for (const Rank* rank : Running()) {
      if (rank->fd >= 0) fds.push_back({rank->fd, POLLIN, 0});
    }
    poll(fds.data(), fds.size(), static_cast<int>(kTick.count()));
  }

  // Reads what ranks tell and sees who has ended. A failure that a signal or an
  // exit made is more likely the cause of several than one that was told.
  absl::Status Collect() {
    absl::Status first;
    absl::Status told;
    for (Rank* rank : Running()) {
      Read(*rank);
      int end = 0;
      if (!HasEnded(rank->pid, WNOHANG, &end)) continue;
      Read(*rank);
      Close(*rank);
      (rank->told.empty() ? first : told).Update(RankStatus(*rank, end));
    }
    first.Update(told);
    return first;
  }

  static void Read(Rank& rank) {
    char buffer[4096];
    while (rank.fd >= 0) {
      const ssize_t got = read(rank.fd, buffer, sizeof(buffer));
      if (got > 0) {
        rank.told.append(buffer, got);
      } else if (got == 0) {
        close(std::exchange(rank.fd, -1));
      } else if (errno != EINTR) {
        return;
      }
    }
  }

  static void Close(Rank& rank) {
    rank.running = false;
    if (rank.fd >= 0) close(std::exchange(rank.fd, -1));
  }

  static absl::Status RankStatus(const Rank& rank, int end) {
    if (rank.told.empty()) {
      return absl::AbortedError(absl::StrCat(
          "rank ", rank.number,
          " ended before its function returned: ", DescribeEnd(end)));
    }
    const auto code = static_cast<absl::StatusCode>(rank.told[0]);
    if (code == absl::StatusCode::kOk) return absl::OkStatus();
    return absl::Status(
        code, absl::StrCat("rank ", rank.number, ": ", rank.told.substr(1)));
  }

  absl::Status Overdue(std::chrono::milliseconds timeout) {
    std::string names;
    for (const Rank* rank : Running()) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", rank->number);
    }
    return absl::DeadlineExceededError(
        absl::StrCat("after ", timeout.count(), " ms these of ", ranks_.size(),
                     " ranks still ran: ", names));
  }

  std::vector<Rank> ranks_;
};

}  // namespace

absl::Status Spawn(absl::FunctionRef<absl::Status(int rank)> fn, int nprocs,
                   const SpawnOptions& options) {
  if (nprocs < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot spawn ", nprocs, " ranks; expected 0 or more"));
  }
  const int threads = CountThreads();
  if (threads > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "Spawn forks, but this process already has ", threads,
        " threads, which the ranks would lack; call it before anything starts "
        "threads (tensor operations do)"));
  }
  Ranks ranks;
  absl::Status status = ranks.Start(fn, nprocs);
  if (status.ok()) status = ranks.Join(options);
  ranks.Stop(options.grace);
  return status;
}

}  // namespace tandem
