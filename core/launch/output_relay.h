// Output relay: what a rank prints, passed on to the launcher's own output.

#ifndef TANDEM_CORE_LAUNCH_OUTPUT_RELAY_H_
#define TANDEM_CORE_LAUNCH_OUTPUT_RELAY_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// Remembers the last lines of a text that comes in pieces. A carriage return
// begins its line anew, as on a terminal.
class LastLines {
 public:
  explicit LastLines(size_t capacity) : capacity_(capacity) {}

  void Add(absl::string_view bytes);
  // With the unfinished line, if any; empty lines left out.
  std::vector<std::string> Get() const;

 private:
  size_t capacity_;
  std::deque<std::string> lines_;
  std::string partial_;
  bool after_return_ = false;
};

// An output that several streams go to. Output that cannot be written (a closed
// pipe, a full disk) is dropped, of which the first time a line on stderr says
// why; the caller must ignore SIGPIPE. Where a reader is slow, who writes waits
// 50 ms at most; the rest is written meanwhile, and what is more than 8 MiB is
// dropped, with a line that says how much.
class OutputSink {
 public:
  // Does not own `fd`.
  explicit OutputSink(int fd);
  // Waits for what is not written yet as long as some of it is read in any 2 s.
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  void Write(absl::string_view bytes);
  // Writes `line` and a newline at once, on a line of its own where the output
  // is a terminal on which a progress bar stands.
  void WriteLine(absl::string_view line);

  // Whether `line` is among the last few that were written.
  bool HasJustWritten(absl::string_view line) const;

  // Whether more than 4 MiB are waiting, or some are dropped, of which some
  // were read in the last 2 s: it is worth waiting with what else there is.
  bool IsCongested() const;

  bool is_terminal() const { return is_terminal_; }
  // A pipe or a socket, whose reader may stand still.
  bool has_reader() const { return has_reader_; }

 private:
  struct Queue;

  // The queue of the thread that writes, which a reader that does not read may
  // block for ever.
  const std::shared_ptr<Queue> queue_;
  const bool is_terminal_;
  const bool has_reader_;
  bool at_line_start_ = true;
  bool is_behind_ = false;
  LastLines written_;
};

// One stream of one rank.
class OutputRelay {
 public:
  // Reads `fd` (non-blocking, not owned; -1: nothing to read). With an empty
  // prefix bytes go to `sink` as they come; with another, line by line, each
  // behind the prefix.
  OutputRelay(int fd, OutputSink* sink, std::string prefix, size_t last_lines);

  // To poll for reading; -1 at the stream's end.
  int fd() const { return fd_; }
  // Whether it reads nothing at the moment: its sink has a slow reader, and who
  // writes there directly would have to wait as well. Nothing says when it is
  // over.
  bool IsHeldUp() const;
  // Passes on what there is now.
  void Pump();
  // Passes on what there is, with the last line even if it is unfinished.
  void Finish();

  std::vector<std::string> LastLinesRead() const { return last_lines_.Get(); }
  // The last lines before the ones that stand among the sink's last.
  std::vector<std::string> LastLinesOutOfSight() const;

 private:
  void ReadOn();
  void Relay(absl::string_view bytes);
  void EmitLine(absl::string_view line);

  int fd_;
  OutputSink* sink_;
  std::string prefix_;
  std::string partial_;
  LastLines last_lines_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_OUTPUT_RELAY_H_
