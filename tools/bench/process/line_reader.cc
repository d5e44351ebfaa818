#include "tools/bench/process/line_reader.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tandem {

void LineReader::Pump() {
  char bytes[4096];
  while (fd_ >= 0) {
    const ssize_t got = read(fd_, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      fd_ = -1;
      if (!partial_.empty()) lines_.push_back(std::move(partial_));
      return;
    }
    for (ssize_t i = 0; i < got; ++i) {
      if (bytes[i] != '\n') {
        partial_ += bytes[i];
        continue;
      }
      lines_.push_back(std::move(partial_));
      partial_.clear();
    }
  }
}

std::optional<std::string> LineReader::Next() {
  if (lines_.empty()) return std::nullopt;
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

}  // namespace tandem
