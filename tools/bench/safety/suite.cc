#include "tools/bench/safety/suite.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/flight/recorder.h"
#include "core/program/progress.h"
#include "tools/bench/case/workload.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/metrics.h"
#include "tools/bench/process/program.h"
#include "tools/bench/suite/suite.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEntries = 100000;

// Scheduled, started, waited for and completed, as a bucket's all-reduce is.
void NoteMany(FlightRecorder& recorder) {
  const auto group =
      std::make_shared<FlightGroup>("world", "world", std::vector<int>{0, 1});
  const int64_t sizes[] = {1 << 20};
  FlightOperation operation;
  operation.name = "all-reduce";
  operation.dtype = "Float";
  operation.sizes = sizes;
  for (int i = 1; i <= kEntries; ++i) {
    const FlightPurposeScope purpose({"bucket", i});
    const FlightRecorder::Id id = recorder.Schedule(group, operation, i);
    recorder.Start(id);
    recorder.Await(id);
    recorder.Complete(id);
  }
}

constexpr std::chrono::minutes kTimeout(30);
constexpr int64_t kEvery = 100;

struct SafetyFeature {
  enum class Cost { kStep, kEntries, kSave, kStall };
  std::string name;
  std::vector<std::string> flags;
  Cost cost = Cost::kStep;
  int64_t every = 1;
};

constexpr char kNoRecorder[] = "--flight_entries=0";

// Steps between two reports, unless --log_every says otherwise.
constexpr int64_t kReportedEvery = 25;

// All that reports a step in files, for each step: the metrics file, which
// every job here has, gets it as well.
std::vector<std::string> ReportingFlags(const std::string& folder) {
  return {kNoRecorder, "--log_every=1",
          absl::StrCat("--tensorboard_dir=", folder, "/board"),
          absl::StrCat("--prometheus_file=", folder, "/job.prom"),
          absl::StrCat("--report=", folder, "/report.html")};
}

std::vector<SafetyFeature> SafetyFeatures(const SafetyBench& bench) {
  const std::string every = absl::StrCat(" each ", kEvery, " steps");
  const std::string saves = absl::StrCat("--save_every=", bench.save_every);
  return {
      {"nothing, once more", {kNoRecorder}},
      {"flight recorder (always on)", {}, SafetyFeature::Cost::kEntries},
      {"--skip_nonfinite", {kNoRecorder, "--skip_nonfinite"}},
      {absl::StrCat("--check_replicas_every=", kEvery),
       {kNoRecorder, "--check_replicas_every=1"},
       SafetyFeature::Cost::kStep,
       kEvery},
      {"metrics, TensorBoard, Prometheus, report", ReportingFlags(bench.folder),
       SafetyFeature::Cost::kStep, kReportedEvery},
      {absl::StrCat("--async_save", every),
       {kNoRecorder, saves, "--async_save"},
       SafetyFeature::Cost::kStall,
       kEvery},
      {absl::StrCat("a save that is waited for,", every),
       {kNoRecorder, saves},
       SafetyFeature::Cost::kSave,
       kEvery},
      {"--check_finite", {kNoRecorder, "--check_finite"}},
  };
}

struct JobTimes {
  double step_ms = 0;   // median
  double save_ms = 0;   // of each of its saves, mean
  double stall_ms = 0;  // of each that was written behind, median
  double entries = 0;   // of the flight recorder, in a step
};

// The number behind `mark` in each line that has it.
std::vector<double> NumbersBehind(absl::string_view mark,
                                  absl::string_view text) {
  std::vector<double> numbers;
  for (size_t at = text.find(mark); at != absl::string_view::npos;
       at = text.find(mark, at)) {
    at += mark.size();
    double number = 0;
    const absl::string_view rest = text.substr(at);
    if (absl::SimpleAtod(rest.substr(0, rest.find(' ')), &number)) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

// How many jobs a model has in a round.
int JobsInRound(const std::vector<SafetyFeature>& all) {
  int jobs = 0;
  for (const SafetyFeature& means : all) {
    jobs += means.cost == SafetyFeature::Cost::kStep ? 2 : 1;
  }
  return jobs;
}

absl::StatusOr<JobTimes> MeasureTimes(const SafetyBench& bench,
                                      std::vector<std::string> command,
                                      const SafetyFeature& means) {
  const std::string& folder = bench.folder;
  const std::string metrics = absl::StrCat(folder, "/metrics.jsonl");
  command.push_back(absl::StrCat("--metrics_file=", metrics));
  if (means.cost == SafetyFeature::Cost::kStep) {
    command.push_back("--save_dir=");
  } else {
    const std::string saves = absl::StrCat(folder, "/saves");
    std::error_code ignored;
    std::filesystem::remove_all(saves, ignored);
    command.push_back(absl::StrCat("--save_dir=", saves));
    command.push_back("--keep_last=1");
  }
  command.insert(command.end(), means.flags.begin(), means.flags.end());
  TANDEM_ASSIGN_OR_RETURN(const JobEnd end,
                          RunJob(command, Environment::OfProcess(), kTimeout));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> summaries,
                          MetricsEvents(metrics, "summary"));
  const nlohmann::json& summary = summaries.front();
  JobTimes times;
  times.step_ms = summary.at("step_ms_median").get<double>();
  if (const auto count = summary.at("saves").get<int64_t>(); count > 0) {
    times.save_ms =
        summary.at("save_stall_ms").get<double>() / static_cast<double>(count);
  }
  times.entries = summary.at("flight_entries").get<double>() /
                  static_cast<double>(bench.steps);
  times.stall_ms =
      MedianOrZero(NumbersBehind("the loop stood still for ", end.out));
  return times;
}

double RelativeCost(const SafetyFeature& means, const JobTimes& times,
                    double plain_ms) {
  switch (means.cost) {
    case SafetyFeature::Cost::kStep:
      return times.step_ms - plain_ms;
    case SafetyFeature::Cost::kEntries:
      return times.entries * FlightEntryNanoseconds(/*threads=*/2) / 1e6;
    case SafetyFeature::Cost::kSave:
      return times.save_ms;
    case SafetyFeature::Cost::kStall:
      return times.stall_ms;
  }
  return 0;
}

absl::Status MeasureModel(const SafetyBench& bench, const std::string& train,
                          const Workload& workload, Progress& progress,
                          std::vector<SafetyResult>& results) {
  std::vector<std::string> command =
      TrainFlags(workload, bench.ranks, bench.steps);
  command.insert(command.begin(), train);
  const std::vector<SafetyFeature> all = SafetyFeatures(bench);
  const size_t first = results.size();
  for (const SafetyFeature& means : all) {
    results.push_back({workload.model, means.name, means.every, {}, {}});
  }
  for (int round = 0; round < bench.rounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      // Before each difference one of its own: a machine does not stay as fast
      // as it was.
      double plain_ms = 0;
      if (all[i].cost == SafetyFeature::Cost::kStep) {
        progress.BeginPart(absl::StrCat(workload.model, ", nothing"));
        TANDEM_ASSIGN_OR_RETURN(
            const JobTimes plain,
            MeasureTimes(bench, command, {"", {kNoRecorder}}));
        plain_ms = plain.step_ms;
      }
      progress.BeginPart(absl::StrCat(workload.model, ", ", all[i].name));
      TANDEM_ASSIGN_OR_RETURN(const JobTimes times,
                              MeasureTimes(bench, command, all[i]));
      if (plain_ms == 0) plain_ms = times.step_ms;
      SafetyResult& result = results[first + i];
      result.plain_ms.push_back(plain_ms);
      result.cost_ms.push_back(RelativeCost(all[i], times, plain_ms));
    }
  }
  return absl::OkStatus();
}

}  // namespace

double FlightEntryNanoseconds(int threads) {
  FlightRecorder recorder;
  const auto start = Clock::now();
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] { NoteMany(recorder); });
  }
  for (std::thread& each : running) each.join();
  const std::chrono::duration<double, std::nano> took = Clock::now() - start;
  return took.count() / kEntries;
}

std::vector<double> Shares(const SafetyResult& result) {
  std::vector<double> shares;
  for (size_t i = 0; i < result.cost_ms.size(); ++i) {
    shares.push_back(100 * result.cost_ms[i] /
                     static_cast<double>(result.every) / result.plain_ms[i]);
  }
  return shares;
}

absl::StatusOr<std::vector<SafetyResult>> MeasureSafety(
    const SafetyBench& bench) {
  TANDEM_ASSIGN_OR_RETURN(const std::string train, Runfile("tools/train"));
  std::vector<Workload> workloads;  // all are known before any is measured
  for (const std::string& model : bench.models) {
    TANDEM_ASSIGN_OR_RETURN(workloads.emplace_back(), WorkloadNamed(model));
  }
  Progress progress("jobs",
                    JobsInRound(SafetyFeatures(bench)) * bench.rounds *
                        static_cast<int64_t>(workloads.size()),
                    Progress::ToStderr());
  std::vector<SafetyResult> results;
  for (const Workload& workload : workloads) {
    TANDEM_RETURN_IF_ERROR(
        MeasureModel(bench, train, workload, progress, results));
  }
  return results;
}

std::vector<Table> SafetyTables(const std::vector<SafetyResult>& results) {
  Table costs = {"costs",
                 {{"model"},
                  {"step", "ms", 3},
                  {"means"},
                  {"cost", "ms", 3},
                  {"every"},
                  {"percent", "", 2},
                  {"percent_min", "", 2},
                  {"percent_max", "", 2}}};
  for (const SafetyResult& each : results) {
    const std::vector<double> shares = Shares(each);
    const auto [min, max] = std::minmax_element(shares.begin(), shares.end());
    costs.Add({each.model, Median(each.plain_ms), each.means,
               Median(each.cost_ms), each.every, Median(shares), *min, *max});
  }
  return {costs};
}

absl::StatusOr<SuiteReport> RunSafetySuite(const BenchFlags& flags,
                                           const std::string& folder) {
  SafetyBench bench;
  if (!flags.cases.empty()) bench.models = flags.cases;
  bench.ranks = flags.ranks.value_or(bench.ranks);
  bench.steps = flags.steps.value_or(bench.steps);
  bench.save_every = flags.save_every;
  bench.rounds = flags.rounds.value_or(bench.rounds);
  bench.folder = folder;
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", bench.ranks, 2));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("save_every", bench.save_every, 1));
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("steps", bench.steps, bench.save_every + 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", bench.rounds, 1));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<SafetyResult> results,
                          MeasureSafety(bench));
  return SuiteReport{SafetyTables(results)};
}

}  // namespace tandem
