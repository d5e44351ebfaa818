#include "core/launch/output_relay.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// How often to read before others get their turn: more than a pipe can hold.
constexpr int kReadsAtOnce = 16;

// A line longer than this is passed on in pieces.
constexpr size_t kLongestLine = 64 << 10;

}  // namespace

OutputSink::OutputSink(int fd) : fd_(fd), is_terminal_(isatty(fd) == 1) {}

void OutputSink::Write(absl::string_view bytes) {
  if (bytes.empty()) return;
  at_line_start_ = bytes.back() == '\n';
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(written);
    } else if (errno == EAGAIN) {  // somebody else made it non-blocking
      pollfd ready = {fd_, POLLOUT, 0};
      poll(&ready, 1, 100);
    } else if (errno != EINTR) {
      return;
    }
  }
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
