#include "core/launch/output_relay.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem {
namespace {

// How often to read before others get their turn: more than a pipe can hold.
constexpr int kReadsAtOnce = 16;

// A line longer than this is passed on in pieces.
constexpr size_t kLongestLine = 64 << 10;

// Lines that stand before whoever reads the sink's output.
constexpr size_t kInSight = 8;

constexpr size_t kMostWaiting = 8 << 20;  // bytes
constexpr absl::Duration kPatience = absl::Milliseconds(50);
constexpr absl::Duration kLastPatience = absl::Seconds(2);
// So that it shows whether a slow reader reads.
constexpr size_t kWrittenAtOnce = 64 << 10;
// Beyond it who has more to write is held up, where somebody reads.
constexpr size_t kMuchWaiting = kMostWaiting / 2;

bool IsPipeOrSocket(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 &&
         (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

// 0, or errno where it goes nowhere: nobody will read it, or the disk is full.
int WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(written);
    } else if (errno == EAGAIN) {  // somebody else made it non-blocking
      pollfd ready = {fd, POLLOUT, 0};
      poll(&ready, 1, 100);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// Where stderr itself is what cannot be written there is nobody to tell.
void SayUnheard(int error) {
  WriteAll(STDERR_FILENO,
           absl::StrCat("tandem: what is printed goes nowhere (",
                        std::strerror(error), "); ranks go on\n"));
}

}  // namespace

struct OutputSink::Queue {
  using Clock = std::chrono::steady_clock;

  explicit Queue(int descriptor) : fd(descriptor) {}

  void Add(absl::string_view bytes) {
    absl::MutexLock lock(&mutex);
    if (IsWritten()) moved_at = Clock::now();
    if (dropped > 0 || waiting.size() + bytes.size() > kMostWaiting) {
      dropped += bytes.size();
    } else {
      absl::StrAppend(&waiting, bytes);
    }
  }

  // Much is waiting, and not in vain.
  bool IsCongested() {
    absl::MutexLock lock(&mutex);
    return (dropped > 0 || waiting.size() > kMuchWaiting) &&
           Clock::now() - moved_at < absl::ToChronoSeconds(kLastPatience);
  }

  // Until all is written; false: it is not, though `patience` is over.
  bool Await(absl::Duration patience) {
    absl::MutexLock lock(&mutex);
    return mutex.AwaitWithTimeout(absl::Condition(this, &Queue::IsWritten),
                                  patience);
  }

  // Until it is closed.
  void Serve() {
    bool is_unheard = false;
    absl::MutexLock lock(&mutex);
    while (true) {
      mutex.Await(absl::Condition(this, &Queue::HasWork));
      if (waiting.empty() && dropped == 0) return;
      if (waiting.empty()) {
        waiting = absl::StrCat("\ntandem: ", std::exchange(dropped, 0),
                               " bytes of output are left out here: nobody "
                               "read them\n");
      }
      const std::string some = waiting.substr(0, kWrittenAtOnce);
      waiting.erase(0, some.size());
      is_writing = true;
      mutex.Unlock();
      const int error = WriteAll(fd, some);
      if (error != 0 && !std::exchange(is_unheard, true)) SayUnheard(error);
      mutex.Lock();
      is_writing = false;
      moved_at = Clock::now();
      written += some.size();
      if (error != 0) waiting.clear();
    }
  }

  bool IsWritten() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return waiting.empty() && dropped == 0 && !is_writing;
  }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return closed || !waiting.empty() || dropped > 0;
  }

  const int fd;
  absl::Mutex mutex;
  std::string waiting ABSL_GUARDED_BY(mutex);
  size_t dropped ABSL_GUARDED_BY(mutex) = 0;          // bytes, not told of yet
  size_t written ABSL_GUARDED_BY(mutex) = 0;          // bytes
  Clock::time_point moved_at ABSL_GUARDED_BY(mutex);  // some were, or the first
  bool is_writing ABSL_GUARDED_BY(mutex) = false;
  bool closed ABSL_GUARDED_BY(mutex) = false;
};

OutputSink::OutputSink(int fd)
    : queue_(std::make_shared<Queue>(fd)),
      is_terminal_(isatty(fd) == 1),
      has_reader_(IsPipeOrSocket(fd)),
      written_(kInSight) {
  std::thread([queue = queue_] { queue->Serve(); }).detach();
}

OutputSink::~OutputSink() {
  size_t before = 0;
  while (!queue_->Await(kLastPatience)) {
    absl::MutexLock lock(&queue_->mutex);
    if (std::exchange(before, queue_->written) == queue_->written) break;
  }
  absl::MutexLock lock(&queue_->mutex);
  queue_->closed = true;
  queue_->waiting.clear();
  queue_->dropped = 0;
}

void OutputSink::Write(absl::string_view bytes) {
  if (bytes.empty()) return;
  at_line_start_ = bytes.back() == '\n';
  written_.Add(bytes);
  queue_->Add(bytes);
  is_behind_ = !queue_->Await(is_behind_ ? absl::ZeroDuration() : kPatience);
}

void OutputSink::WriteLine(absl::string_view line) {
  const bool breaks_line = is_terminal_ && !at_line_start_;
  Write(absl::StrCat(breaks_line ? "\n" : "", line, "\n"));
}

bool OutputSink::IsCongested() const { return queue_->IsCongested(); }

bool OutputSink::HasJustWritten(absl::string_view line) const {
  const std::vector<std::string> last = written_.Get();
  return std::find(last.begin(), last.end(), line) != last.end();
}

void LastLines::Add(absl::string_view bytes) {
  for (const char c : bytes) {
    if (std::exchange(after_return_, false) && c != '\n') partial_.clear();
    if (c == '\n') {
      if (!partial_.empty()) lines_.push_back(std::exchange(partial_, ""));
      if (lines_.size() > capacity_) lines_.pop_front();
    } else if (c == '\r') {
      after_return_ = true;
    } else if (partial_.size() < kLongestLine) {
      partial_.push_back(c);
    }
  }
}

std::vector<std::string> LastLines::Get() const {
  std::vector<std::string> result(lines_.begin(), lines_.end());
  if (!partial_.empty()) result.push_back(partial_);
  if (result.size() > capacity_) result.erase(result.begin());
  return result;
}

OutputRelay::OutputRelay(int fd, OutputSink* sink, std::string prefix,
                         size_t last_lines)
    : fd_(fd),
      sink_(sink),
      prefix_(std::move(prefix)),
      last_lines_(last_lines) {}

bool OutputRelay::IsHeldUp() const { return fd_ >= 0 && sink_->IsCongested(); }

void OutputRelay::Pump() {
  if (!IsHeldUp()) ReadOn();
}

void OutputRelay::ReadOn() {
  char buffer[16 << 10];
  for (int i = 0; i < kReadsAtOnce && fd_ >= 0; ++i) {
    const ssize_t got = read(fd_, buffer, sizeof(buffer));
    if (got > 0) {
      Relay(absl::string_view(buffer, got));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else {
      fd_ = -1;  // its end; of a pseudo-terminal: EIO
    }
  }
}

void OutputRelay::Finish() {
  ReadOn();
  if (!partial_.empty()) EmitLine(std::exchange(partial_, ""));
  fd_ = -1;
}

std::vector<std::string> OutputRelay::LastLinesOutOfSight() const {
  std::vector<std::string> lines = last_lines_.Get();
  while (!lines.empty() &&
         sink_->HasJustWritten(absl::StrCat(prefix_, lines.back()))) {
    lines.pop_back();
  }
  return lines;
}

void OutputRelay::Relay(absl::string_view bytes) {
  last_lines_.Add(bytes);
  if (prefix_.empty()) {
    sink_->Write(bytes);
    return;
  }
  for (const char c : bytes) {
    if (c == '\n' || partial_.size() >= kLongestLine) {
      EmitLine(std::exchange(partial_, ""));
    }
    if (c != '\n') partial_.push_back(c);
  }
}

void OutputRelay::EmitLine(absl::string_view line) {
  sink_->WriteLine(absl::StrCat(prefix_, line));
}

}  // namespace tandem
