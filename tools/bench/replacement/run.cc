#include "tools/bench/replacement/run.h"

#include <poll.h>

#include <algorithm>
#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/base/text_table.h"
#include "core/process/subprocess.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/line_reader.h"
#include "tools/bench/process/runfile.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kTimeout(30);
constexpr int64_t kBatchOfRank = 32;

struct Way {
  std::vector<std::string> flags;
  bool dies = true;
  std::string mark;  // that its messages must have
};

std::vector<std::string> CommandOf(const ReplacementBench& bench,
                                   const std::string& train, const Way& way,
                                   const std::string& save_dir) {
  const int64_t batch = kBatchOfRank * bench.ranks;
  std::vector<std::string> command = {
      train,
      absl::StrCat("--nproc_per_node=", bench.ranks),
      absl::StrCat("--model=", bench.model),
      "--dataset=synthetic",
      "--learning_rate=0.001",
      absl::StrCat("--synthetic_samples=", batch * bench.steps),
      absl::StrCat("--batch_size=", batch),
      absl::StrCat("--save_every=", bench.save_every),
      "--keep_last=1",
      "--restart_delay=0",
      absl::StrCat("--save_dir=", save_dir)};
  command.insert(command.end(), way.flags.begin(), way.flags.end());
  return command;
}

// Until its stderr ends, to which messages come; its report is not kept.
std::string ReadMessages(const Subprocess& job, Clock::time_point deadline) {
  LineReader out(job.out_fd());
  LineReader err(job.err_fd());
  std::string text;
  while (err.fd() >= 0 && Clock::now() < deadline) {
    pollfd ready[] = {{out.fd(), POLLIN, 0}, {err.fd(), POLLIN, 0}};
    poll(ready, 2, /*timeout=*/1000);
    out.Pump();
    err.Pump();
    while (out.Next().has_value()) {
    }
    while (const auto line = err.Next()) absl::StrAppend(&text, *line, "\n");
  }
  return text;
}

absl::StatusOr<double> TimeOf(const ReplacementBench& bench, const Way& way,
                              const std::string& save_dir) {
  TANDEM_ASSIGN_OR_RETURN(const std::string train, Runfile("tools/train"));
  Environment environment = Environment::OfProcess();
  if (way.dies) {
    environment.Set("TANDEM_FAULT",
                    absl::StrCat("point=bucket:0,action=kill,step=",
                                 bench.dies_at, ",rank=", bench.ranks - 1));
  }
  SubprocessOptions process;
  process.program = train;
  process.argv = CommandOf(bench, train, way, save_dir);
  process.environment = environment.ToStrings();
  process.out = SubprocessOptions::Stream::kPipe;
  process.err = SubprocessOptions::Stream::kPipe;
  const auto start = Clock::now();
  TANDEM_ASSIGN_OR_RETURN(Subprocess job, Subprocess::Start(process));
  const auto deadline = start + kTimeout;
  const std::string said = ReadMessages(job, deadline);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - Clock::now());
  const auto end = job.Wait(std::max(left, std::chrono::milliseconds(0)));
  const double seconds =
      std::chrono::duration<double>(Clock::now() - start).count();
  if (end == 0 && absl::StrContains(said, way.mark)) return seconds;
  return absl::InternalError(absl::StrCat(
      "a job ended otherwise than it was to",
      way.mark.empty() ? "" : absl::StrCat(", or without '", way.mark, "'"),
      ": ", said));
}

}  // namespace

absl::StatusOr<ReplacementResult> MeasureReplacement(
    const ReplacementBench& bench) {
  const Way undisturbed = {{}, /*dies=*/false, ""};
  const Way replaced = {{"--replace_replicas=1"}, true, "(replacement 1 of 1)"};
  const Way restarted = {{"--max_restarts=1"}, true, "restart 1 of 1"};
  ReplacementResult result;
  for (int round = 0; round < bench.rounds; ++round) {
    const auto folder = [&](const char* name) {
      return absl::StrCat(bench.folder, "/", name, "_", round);
    };
    TANDEM_ASSIGN_OR_RETURN(result.undisturbed.emplace_back(),
                            TimeOf(bench, undisturbed, folder("undisturbed")));
    TANDEM_ASSIGN_OR_RETURN(result.replaced.emplace_back(),
                            TimeOf(bench, replaced, folder("replaced")));
    TANDEM_ASSIGN_OR_RETURN(result.restarted.emplace_back(),
                            TimeOf(bench, restarted, folder("restarted")));
  }
  return result;
}

std::string ReplacementTable(const ReplacementResult& result) {
  const double usual = Median(result.undisturbed);
  std::vector<std::vector<std::string>> rows = {
      {"", "s", "lost by the death, s"}};
  const auto add = [&](const char* name, const std::vector<double>& seconds) {
    rows.push_back({name, absl::StrFormat("%.2f", Median(seconds)),
                    absl::StrFormat("%.2f", Median(seconds) - usual)});
  };
  add("nobody dies", result.undisturbed);
  add("--replace_replicas", result.replaced);
  add("--max_restarts", result.restarted);
  return TextTable(rows);
}

nlohmann::json ReplacementJson(const ReplacementResult& result) {
  return {{"undisturbed_s", result.undisturbed},
          {"replaced_s", result.replaced},
          {"restarted_s", result.restarted}};
}

}  // namespace tandem
