#include "tools/bench/process/side.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/process/process_end.h"
#include "tools/bench/measure/cores.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kLinesKept = 12;  // of stderr, for messages
constexpr int kPollMs = 100;

// Opened for both directions it does not wait for a reader.
absl::StatusOr<int> MakeFifo(const std::string& path) {
  if (mkfifo(path.c_str(), 0600) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mkfifo ", path));
  }
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  return fd;
}

}  // namespace

double Greatest(const std::vector<json>& answers, const char* key) {
  double greatest = 0;
  for (const json& each : answers) {
    greatest = std::max(greatest, each.at(key).get<double>());
  }
  return greatest;
}

double Mean(const std::vector<json>& answers, const char* key) {
  double sum = 0;
  for (const json& each : answers) sum += each.at(key).get<double>();
  return sum / static_cast<double>(answers.size());
}

std::vector<double> SumOfLists(const std::vector<json>& answers,
                               const char* key) {
  std::vector<double> sums;
  for (const json& each : answers) {
    const auto values = each.at(key).get<std::vector<double>>();
    sums.resize(std::max(sums.size(), values.size()));
    for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
  }
  return sums;
}

absl::StatusOr<std::unique_ptr<Side>> Side::Start(const SideOptions& options) {
  std::unique_ptr<Side> side(new Side(options));
  for (int rank = 0; rank < options.ranks; ++rank) {
    TANDEM_RETURN_IF_ERROR(side->StartRank(rank));
  }
  return side;
}

Side::~Side() {
  for (Rank& rank : ranks_) close(rank.commands_fd);
}

absl::Status Side::StartRank(int rank) {
  const std::string stem = absl::StrCat(options_.folder, "/", options_.name);
  const std::string fifo = absl::StrCat(stem, ".", rank);
  SubprocessOptions process;
  process.program = options_.command.front();
  process.argv = options_.command;
  for (const std::string& flag :
       {absl::StrCat("--rank=", rank), absl::StrCat("--ranks=", options_.ranks),
        absl::StrCat("--core=", options_.binds_cores
                                    ? CoreNumber(rank, options_.ranks)
                                    : -1),
        absl::StrCat("--rendezvous=", stem, ".rendezvous"),
        absl::StrCat("--commands=", fifo)}) {
    process.argv.push_back(flag);
  }
  process.environment = options_.environment.ToStrings();
  process.out = SubprocessOptions::Stream::kPipe;
  process.err = SubprocessOptions::Stream::kPipe;
  TANDEM_ASSIGN_OR_RETURN(const int commands_fd, MakeFifo(fifo));
  absl::StatusOr<Subprocess> started = Subprocess::Start(process);
  if (!started.ok()) {
    close(commands_fd);
    return started.status();
  }
  const int out_fd = started->out_fd();
  const int err_fd = started->err_fd();
  ranks_.push_back({*std::move(started),
                    commands_fd,
                    LineReader(out_fd),
                    LineReader(err_fd),
                    {}});
  return absl::OkStatus();
}

std::string Side::Where(int rank, const std::string& what) const {
  std::string text = absl::StrCat(options_.name, ": rank ", rank, " ", what);
  if (!ranks_[rank].last_lines.empty()) {
    absl::StrAppend(&text, "; its last lines:\n  ",
                    absl::StrJoin(ranks_[rank].last_lines, "\n  "));
  }
  return text;
}

absl::Status Side::Tell(const std::string& command) {
  const std::string line = command + "\n";
  for (const Rank& rank : ranks_) {
    if (write(rank.commands_fd, line.data(), line.size()) < 0) {
      return absl::ErrnoToStatus(errno, "writing a command");
    }
  }
  return absl::OkStatus();
}

void Side::Pump() {
  std::vector<pollfd> fds;
  for (const Rank& rank : ranks_) {
    fds.push_back({rank.out.fd(), POLLIN, 0});
    fds.push_back({rank.err.fd(), POLLIN, 0});
  }
  poll(fds.data(), fds.size(), kPollMs);
  for (Rank& rank : ranks_) {
    rank.out.Pump();
    rank.err.Pump();
    while (auto line = rank.err.Next()) {
      rank.last_lines.push_back(*std::move(line));
      if (rank.last_lines.size() > kLinesKept) rank.last_lines.pop_front();
    }
  }
}

absl::StatusOr<json> Side::TakeAnswer(int rank) {
  while (auto line = ranks_[rank].out.Next()) {
    json answer = json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) continue;
    if (answer.contains("error")) {
      return absl::AbortedError(
          Where(rank, absl::StrCat("failed: ", answer["error"].dump())));
    }
    return answer;
  }
  const bool may_answer = ranks_[rank].out.fd() >= 0;
  if (may_answer) return json();
  const auto end = ranks_[rank].process.Wait(std::chrono::seconds(5));
  return absl::AbortedError(Where(
      rank,
      absl::StrCat("ended without an answer (",
                   end.has_value() ? DescribeEnd(*end) : "it closed stdout",
                   ")")));
}

absl::StatusOr<std::vector<json>> Side::Ask(const std::string& command,
                                            std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  TANDEM_RETURN_IF_ERROR(Tell(command));
  std::vector<json> answers(ranks_.size());
  while (true) {
    std::vector<std::string> missing;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!answers[rank].is_null()) continue;
      TANDEM_ASSIGN_OR_RETURN(answers[rank], TakeAnswer(rank));
      if (answers[rank].is_null()) missing.push_back(absl::StrCat(rank));
    }
    if (missing.empty()) return answers;
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          options_.name, ": no answer to '", command, "' within ",
          timeout.count() / 1000, " s from rank ", absl::StrJoin(missing, ", "),
          ". ", Where(std::stoi(missing.front()), "is waited for")));
    }
    Pump();
  }
}

absl::StatusOr<json> Side::AskAlone(const json& command,
                                    std::chrono::milliseconds timeout) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(command.dump(), timeout));
  return answers.front();
}

absl::StatusOr<std::unique_ptr<Side>> StartPython(
    std::vector<std::string> command, const std::string& thread_variable,
    const std::string& folder) {
  SideOptions side;
  side.name = "Python";
  side.command = std::move(command);
  side.environment = Environment::OfProcess();
  side.environment.Set(thread_variable, "1");
  side.environment.Set("PYTHONDONTWRITEBYTECODE", "1");
  side.folder = folder;
  return Side::Start(side);
}

}  // namespace tandem
