// One side of a comparison: rank processes that do what they are told, one
// command after another, and sleep in between.
//
// Answers of a side's ranks, taken together.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_SIDE_H_
#define TANDEM_TOOLS_BENCH_PROCESS_SIDE_H_

#include <chrono>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/environment.h"
#include "core/process/subprocess.h"
#include "tools/bench/process/program.h"

namespace tandem {

// The greatest, or the mean, of the numbers that the answers have under `key`;
// at least one answer, and none negative.
double Greatest(const std::vector<nlohmann::json>& answers, const char* key);
double Mean(const std::vector<nlohmann::json>& answers, const char* key);

// Sums of lists, number by number.
std::vector<double> SumOfLists(const std::vector<nlohmann::json>& answers,
                               const char* key);

struct SideOptions {
  std::string name;                  // "tandem", or a peer (--peers)
  std::vector<std::string> command;  // program (a path) and arguments
  Environment environment;
  int ranks = 1;
  bool binds_cores = true;
  std::string folder;  // an existing one, for this side's FIFOs and rendezvous
};

// Each rank is `command` with --rank, --ranks, --core (the rank-th of the cores
// that this process may use; -1, for none, where there are fewer than ranks or
// none is to be bound), --rendezvous
// and --commands behind it. It reads a line of text for each command from the
// FIFO that --commands names and writes a line of JSON for each to stdout;
// other lines are ignored.
//
// Not thread-safe. Destruction kills the ranks.
class Side {
 public:
  static absl::StatusOr<std::unique_ptr<Side>> Start(
      const SideOptions& options);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  const std::string& name() const { return options_.name; }

  // Gives all ranks the command, and returns their answers, by rank.
  // Aborted when a rank ended or answered with an "error" (its text is in the
  // message); DeadlineExceeded names the ranks that did not answer.
  absl::StatusOr<std::vector<nlohmann::json>> Ask(
      const std::string& command, std::chrono::milliseconds timeout);

  // Asks a side of one rank: a command in JSON, and the answer.
  absl::StatusOr<nlohmann::json> AskAlone(const nlohmann::json& command,
                                          std::chrono::milliseconds timeout);

 private:
  struct Rank {
    Subprocess process;
    int commands_fd;
    LineReader out;
    LineReader err;
    std::deque<std::string> last_lines;  // of err
  };

  explicit Side(const SideOptions& options) : options_(options) {}

  absl::Status StartRank(int rank);
  absl::Status Tell(const std::string& command);
  // Waits a while for output, and reads it.
  void Pump();
  // The rank's answer, if it has come: null if not.
  absl::StatusOr<nlohmann::json> TakeAnswer(int rank);
  std::string Where(int rank, const std::string& what) const;

  SideOptions options_;
  std::vector<Rank> ranks_;
};

// One rank of Python, which runs `command` with one thread: `thread_variable`
// of the environment says so to its libraries.
absl::StatusOr<std::unique_ptr<Side>> StartPython(
    std::vector<std::string> command, const std::string& thread_variable,
    const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_SIDE_H_
