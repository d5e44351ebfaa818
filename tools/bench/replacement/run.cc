#include "tools/bench/replacement/run.h"

#include <chrono>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "tools/bench/case/train_flags.h"
#include "tools/bench/case/workload.h"
#include "tools/bench/process/job.h"
#include "tools/bench/process/progress.h"
#include "tools/bench/process/runfile.h"

namespace tandem {
namespace {

constexpr std::chrono::minutes kTimeout(30);

struct Way {
  std::vector<std::string> flags;
  bool dies = true;
  std::string mark;  // that its messages must have
};

absl::StatusOr<std::vector<std::string>> CommandOf(
    const ReplacementBench& bench, const Way& way,
    const std::string& save_dir) {
  TANDEM_ASSIGN_OR_RETURN(const std::string train, Runfile("tools/train"));
  TANDEM_ASSIGN_OR_RETURN(const Workload workload, WorkloadNamed(bench.model));
  std::vector<std::string> command =
      TrainFlags(workload, bench.ranks, bench.steps);
  command.insert(command.begin(), train);
  for (const std::string& flag :
       {absl::StrCat("--save_every=", bench.save_every),
        std::string("--keep_last=1"), std::string("--restart_delay=0"),
        absl::StrCat("--save_dir=", save_dir)}) {
    command.push_back(flag);
  }
  command.insert(command.end(), way.flags.begin(), way.flags.end());
  return command;
}

absl::StatusOr<double> TimeOf(const ReplacementBench& bench, const Way& way,
                              const std::string& save_dir) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> command,
                          CommandOf(bench, way, save_dir));
  Environment environment = Environment::OfProcess();
  if (way.dies) {
    environment.Set("TANDEM_FAULT",
                    absl::StrCat("point=bucket:0,action=kill,step=",
                                 bench.dies_at, ",rank=", bench.ranks - 1));
  }
  TANDEM_ASSIGN_OR_RETURN(const JobEnd end,
                          RunJob(command, environment, kTimeout));
  if (absl::StrContains(end.err, way.mark)) return end.seconds;
  return absl::InternalError(
      absl::StrCat("a job ended without '", way.mark, "': ", end.err));
}

}  // namespace

absl::StatusOr<ReplacementResult> MeasureReplacement(
    const ReplacementBench& bench) {
  const Way undisturbed = {{}, /*dies=*/false, ""};
  const Way replaced = {{"--replace_replicas=1"}, true, "(replacement 1 of 1)"};
  const Way restarted = {{"--max_restarts=1"}, true, "restart 1 of 1"};
  ReplacementResult result;
  BenchProgress progress(3 * bench.rounds);
  for (int round = 0; round < bench.rounds; ++round) {
    const auto time_of = [&](const Way& way, const char* name) {
      progress.Begin(name);
      const std::string saves =
          absl::StrCat(bench.folder, "/", name, "_", round);
      std::error_code ignored;
      std::filesystem::remove_all(saves, ignored);  // an earlier measurement's
      return TimeOf(bench, way, saves);
    };
    TANDEM_ASSIGN_OR_RETURN(result.undisturbed.emplace_back(),
                            time_of(undisturbed, "undisturbed"));
    TANDEM_ASSIGN_OR_RETURN(result.replaced.emplace_back(),
                            time_of(replaced, "replaced"));
    TANDEM_ASSIGN_OR_RETURN(result.restarted.emplace_back(),
                            time_of(restarted, "restarted"));
  }
  return result;
}

}  // namespace tandem
