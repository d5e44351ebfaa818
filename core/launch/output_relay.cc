#include "core/launch/output_relay.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
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

constexpr size_t kMostWaiting = 8 << 20;  // bytes
constexpr absl::Duration kPatience = absl::Milliseconds(50);
constexpr absl::Duration kLastPatience = absl::Seconds(2);
// So that it shows whether a slow reader reads.
constexpr size_t kWrittenAtOnce = 64 << 10;

// False where nobody will read it.
bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(written);
    } else if (errno == EAGAIN) {  // somebody else made it non-blocking
      pollfd ready = {fd, POLLOUT, 0};
      poll(&ready, 1, 100);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct OutputSink::Queue {
  explicit Queue(int descriptor) : fd(descriptor) {}

  void Add(absl::string_view bytes) {
    absl::MutexLock lock(&mutex);
    if (dropped > 0 || waiting.size() + bytes.size() > kMostWaiting) {
      dropped += bytes.size();
    } else {
      absl::StrAppend(&waiting, bytes);
    }
  }

  // Until all is written; false: it is not, though `patience` is over.
  bool Await(absl::Duration patience) {
    absl::MutexLock lock(&mutex);
    return mutex.AwaitWithTimeout(absl::Condition(this, &Queue::IsWritten),
                                  patience);
  }

  // Until it is closed.
  void Serve() {
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
      const bool read = WriteAll(fd, some);
      mutex.Lock();
      is_writing = false;
      written += some.size();
      if (!read) waiting.clear();
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
  size_t dropped ABSL_GUARDED_BY(mutex) = 0;  // bytes, not told of yet
  size_t written ABSL_GUARDED_BY(mutex) = 0;  // bytes
  bool is_writing ABSL_GUARDED_BY(mutex) = false;
  bool closed ABSL_GUARDED_BY(mutex) = false;
};

OutputSink::OutputSink(int fd)
    : queue_(std::make_shared<Queue>(fd)), is_terminal_(isatty(fd) == 1) {
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
  queue_->Add(bytes);
  is_behind_ = !queue_->Await(is_behind_ ? absl::ZeroDuration() : kPatience);
}

void OutputSink::WriteLine(absl::string_view line) {
  const bool breaks_line = is_terminal_ && !at_line_start_;
  Write(absl::StrCat(breaks_line ? "\n" : "", line, "\n"));
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

void OutputRelay::Pump() {
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
  Pump();
  if (!partial_.empty()) EmitLine(std::exchange(partial_, ""));
  fd_ = -1;
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
