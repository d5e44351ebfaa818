#include "tools/bench/replacement/suite.h"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/program/progress.h"
#include "tools/bench/case/workload.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"
#include "tools/bench/suite/suite.h"

namespace tandem {
namespace {

constexpr std::chrono::minutes kTimeout(30);

struct Recovery {
  std::vector<std::string> flags;
  bool dies = true;
  std::string mark;  // that its messages must have
};

absl::StatusOr<std::vector<std::string>> TrainCommand(
    const ReplacementBench& bench, const Recovery& way,
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

absl::StatusOr<double> MeasureTime(const ReplacementBench& bench,
                                   const Recovery& way,
                                   const std::string& save_dir) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> command,
                          TrainCommand(bench, way, save_dir));
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

absl::StatusOr<ReplacementBench> BenchFromFlags(const BenchFlags& flags,
                                                const std::string& folder) {
  ReplacementBench bench;
  bench.ranks = flags.ranks.value_or(bench.ranks);
  bench.steps = flags.steps.value_or(bench.steps);
  bench.dies_at = flags.dies_at;
  bench.save_every = flags.save_every;
  bench.rounds = flags.rounds.value_or(bench.rounds);
  bench.folder = folder;
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", bench.ranks, 2));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("dies_at", bench.dies_at, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("steps", bench.steps, bench.dies_at));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("save_every", bench.save_every, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", bench.rounds, 1));
  return bench;
}

}  // namespace

absl::StatusOr<ReplacementResult> MeasureReplacement(
    const ReplacementBench& bench) {
  const Recovery undisturbed = {{}, /*dies=*/false, ""};
  const Recovery replaced = {
      {"--replace_replicas=1"}, true, "(replacement 1 of 1)"};
  const Recovery restarted = {{"--max_restarts=1"}, true, "restart 1 of 1"};
  ReplacementResult result;
  Progress progress("jobs", 3 * bench.rounds, Progress::ToStderr());
  for (int round = 0; round < bench.rounds; ++round) {
    const auto time_of = [&](const Recovery& way, const char* name) {
      progress.BeginPart(name);
      const std::string saves =
          absl::StrCat(bench.folder, "/", name, "_", round);
      std::error_code ignored;
      std::filesystem::remove_all(saves, ignored);  // an earlier measurement's
      return MeasureTime(bench, way, saves);
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

std::vector<Table> ReplacementTables(
    const std::vector<ModelReplacement>& results) {
  Table ways = {"ways",
                {{"name"}, {"way"}, {"median", "s", 2}, {"lost", "s", 2}}};
  Table rounds = {"rounds",
                  {{"name"},
                   {"undisturbed", "s", 2},
                   {"replaced", "s", 2},
                   {"restarted", "s", 2}}};
  for (const auto& [model, times] : results) {
    const double usual = Median(times.undisturbed);
    ways.Add({model, "nobody dies", usual, 0.0});
    const double replaced = Median(times.replaced);
    ways.Add({model, "--replace_replicas", replaced, replaced - usual});
    const double restarted = Median(times.restarted);
    ways.Add({model, "--max_restarts", restarted, restarted - usual});
    for (size_t i = 0; i < times.undisturbed.size(); ++i) {
      rounds.Add(
          {model, times.undisturbed[i], times.replaced[i], times.restarted[i]});
    }
  }
  return {ways, rounds};
}

absl::StatusOr<SuiteReport> RunReplacementSuite(const BenchFlags& flags,
                                                const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(ReplacementBench bench,
                          BenchFromFlags(flags, folder));
  std::vector<std::string> models = flags.cases;
  if (models.empty()) models.push_back(bench.model);
  for (const std::string& model : models) {
    TANDEM_RETURN_IF_ERROR(WorkloadNamed(model).status());
  }
  std::vector<ModelReplacement> results;
  for (const std::string& model : models) {
    bench.model = model;
    TANDEM_ASSIGN_OR_RETURN(const ReplacementResult times,
                            MeasureReplacement(bench));
    results.push_back({model, times});
  }
  return SuiteReport{ReplacementTables(results)};
}

}  // namespace tandem
