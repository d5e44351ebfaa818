// Lines from a pipe, as they come.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_LINE_READER_H_
#define TANDEM_TOOLS_BENCH_PROCESS_LINE_READER_H_

#include <deque>
#include <optional>
#include <string>

namespace tandem {

class LineReader {
 public:
  // Reads `fd`, non-blocking, not owned.
  explicit LineReader(int fd) : fd_(fd) {}

  // To poll for reading; -1 at the stream's end.
  int fd() const { return fd_; }

  // Reads what there is now.
  void Pump();

  // The next whole line, without its newline; at the stream's end also an
  // unfinished one.
  std::optional<std::string> Next();

 private:
  int fd_;
  std::string partial_;
  std::deque<std::string> lines_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_LINE_READER_H_
