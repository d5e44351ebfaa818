// Benchmark programs: checks of their flags, files, beginning and end; the
// Python whose PyTorch tandem is compared with; whole jobs that are timed as
// their users would, from start to end; lines from a pipe.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_PROGRAM_H_
#define TANDEM_TOOLS_BENCH_PROCESS_PROGRAM_H_

#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/environment.h"

namespace tandem {

// Lines from a pipe, as they come.
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

// A Python that imports torch of the version that tandem is built with: `given`
// if it is not empty, else $TANDEM_PEER_PYTHON, else python3. A path, or a name
// that is found in PATH. NotFound, with what to do, if it does not.
absl::StatusOr<std::string> FindPython(const std::string& given,
                                       const Environment& environment);

// InvalidArgument, with the flag's name, for a value below `least`.
absl::Status CheckAtLeast(const std::string& flag, int value, int least);

// InvalidArgument, with the flag's name, for a value that is not among `known`.
absl::Status CheckAmong(const std::string& flag,
                        const std::vector<std::string>& values,
                        const std::vector<std::string>& known);

// What --python=VALUE means: a path from where the user stands, a name, or
// nothing (FindPython).
absl::StatusOr<std::string> PythonFromFlag(std::string value);

// Makes the folder `name` in `parent`: a case's files are its own, since ranks
// that meet through a file want a new one. A folder that is there will do.
absl::StatusOr<std::string> FolderFor(const std::string& name,
                                      const std::string& parent);

// What --json=PATH asks for, from where the user stands; nothing for an empty
// path.
absl::Status WriteJson(const std::string& path, const nlohmann::json& json);

// The program `name`: parses the command line, where all must be flags, and
// runs `work`, with a scratch folder that goes when it is done, or when Ctrl-C,
// SIGTERM or SIGHUP ends the process. Call it first in main. Gives the exit
// code, and says what went wrong (core/program/exit_code.h).
int RunBenchProgram(
    const std::string& name, const std::string& usage, int argc, char** argv,
    absl::FunctionRef<absl::Status(const std::string& folder)> work);

// The path of a file of this workspace ("tools/bench/rank/rank") among the
// program's runfiles, however the program was started. NotFound if it is not
// there.
absl::StatusOr<std::string> Runfile(const std::string& path);

struct JobEnd {
  double seconds = 0;  // from the program's start
  // Until a line of `out` had the mark in it; 0: none had.
  double seconds_to_mark = 0;
  std::string out;
  std::string err;
};

// Runs `command`, of which the first is the program's path. Internal, with what
// it said on stderr, where it ends with another code than 0, or not within
// `timeout`: it is killed then.
absl::StatusOr<JobEnd> RunJob(const std::vector<std::string>& command,
                              const Environment& environment,
                              std::chrono::milliseconds timeout,
                              const std::string& mark = "");

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_PROGRAM_H_
