// Consistency: one worker five times slower than the others, under each way of
// keeping replicas alike; throughput, and the loss over time, as a table and as
// a drawing (docs/consistency.md).
//
// A worker's pace is given, not measured: a step that is through early sleeps
// until its time is over. So a machine of few cores shows what several devices
// would.

#include <ATen/core/Tensor.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/base/text_table.h"
#include "core/comm/communicator.h"
#include "core/files/atomic_file.h"
#include "core/program/exit_code.h"
#include "core/program/process.h"
#include "core/random/random.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/parameter_server.h"
#include "parallel/schedule/sequential.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tools/bench/measure/line_chart.h"
#include "tools/bench/micro/spawned.h"

ABSL_FLAG(std::string, svg, "", "The file to draw to; empty: none.");
ABSL_FLAG(int, workers, 4, "How many, of which the last is the slow one.");
ABSL_FLAG(double, step_ms, 20, "What a step of the others takes.");
ABSL_FLAG(double, slower, 5, "By how much the last one is.");
ABSL_FLAG(double, seconds, 8, "How long each way trains.");

namespace tandem {
namespace {

constexpr int64_t kInputs = 64;
constexpr int64_t kClasses = 10;
constexpr int64_t kBatch = 16;  // of a worker
constexpr double kRate = 0.05;
constexpr uint64_t kSeed = 5;

// What a teacher, a linear layer with random weights, says of random inputs.
Batch BatchOf(const std::string& which, int64_t size) {
  const at::Tensor inputs =
      at::randn({size, kInputs}, GeneratorFor(kSeed, which));
  static const at::Tensor teacher =
      at::randn({kInputs, kClasses}, GeneratorFor(kSeed, "teacher"));
  return {inputs, at::argmax(at::matmul(inputs, teacher), 1), size};
}

// A way of keeping replicas alike.
struct Way {
  std::string name;
  std::function<void(MeshStrategyOptions&)> change;  // of replicas
  std::optional<int64_t> max_staleness;              // of workers of a server
};

std::vector<Way> Ways() {
  const auto averaging = [](std::optional<OuterOptimizerOptions> outer) {
    return [outer](MeshStrategyOptions& options) {
      options.averaging = ParameterAveragingOptions{10, 0, outer};
    };
  };
  return {{"DDP", [](MeshStrategyOptions&) {}, std::nullopt},
          {"local SGD, H = 10", averaging(std::nullopt), std::nullopt},
          {"DiLoCo, H = 10", averaging(OuterOptimizerOptions{0.7, 0.6}),
           std::nullopt},
          {"parameter server, staleness 0", nullptr, 0},
          {"parameter server, staleness 8", nullptr, 8},
          {"parameter server, no bound", nullptr, -1}};
}

absl::StatusOr<std::unique_ptr<Strategy>> NewReplica(
    const Way& way, const OptimizerOptions& optimizer, Communicator* world) {
  MeshStrategyOptions options;
  options.schedule = *SequentialSchedule(1, 1);
  options.seed = kSeed;
  options.optimizer = optimizer;
  if (way.change) way.change(options);
  return MeshStrategy::Create(
      Mlp({kInputs, /*linear_layers=*/3, /*width=*/64, kClasses}), CrossEntropy,
      options, world);
}

absl::StatusOr<std::unique_ptr<Strategy>> NewStrategy(const Way& way,
                                                      Communicator& world) {
  const SgdOptions momentum = {0.9};
  if (!way.max_staleness.has_value()) return NewReplica(way, momentum, &world);
  ParameterServerOptions options;
  options.optimizer = momentum;
  options.max_staleness = *way.max_staleness;
  return MakeParameterServer(
      [&way](int) { return NewReplica(way, SgdOptions{}, nullptr); }, options,
      world);
}

struct Outcome {
  std::vector<ChartPoint> losses;  // by seconds, on samples of no batch
  int64_t steps = 0;               // of all workers
  double seconds = 0;
};

// What one rank's thread knows of a run.
struct Run {
  const Way& way;
  absl::Time begin;
  absl::Mutex* mutex;
  Outcome* outcome;
};

absl::Status Work(const Run& run, int worker, Strategy& strategy) {
  const int workers = absl::GetFlag(FLAGS_workers);
  const bool is_slow = worker == workers - 1;
  const absl::Duration pace =
      absl::Milliseconds(absl::GetFlag(FLAGS_step_ms) *
                         (is_slow ? absl::GetFlag(FLAGS_slower) : 1));
  const absl::Duration slow_pace = absl::Milliseconds(
      absl::GetFlag(FLAGS_step_ms) * absl::GetFlag(FLAGS_slower));
  const absl::Duration time = absl::Seconds(absl::GetFlag(FLAGS_seconds));
  // Replicas that wait for each other do as many steps as the slowest can.
  const bool apart = run.way.max_staleness.has_value();
  const int64_t most = apart ? INT64_MAX : time / slow_pace;
  const Batch test = BatchOf("test", 512);
  absl::Time shown = absl::InfinitePast();
  for (int64_t step = 0;
       step < most && (!apart || absl::Now() - run.begin < time); ++step) {
    const absl::Time began = absl::Now();
    const Batch batch =
        BatchOf(absl::StrCat("batch ", step, " of ", worker), kBatch);
    TANDEM_ASSIGN_OR_RETURN(Score score, strategy.ComputeGradients(batch));
    absl::SleepFor(began + pace - absl::Now());
    TANDEM_RETURN_IF_ERROR(strategy.Update(kRate));
    const double at = absl::ToDoubleSeconds(absl::Now() - run.begin);
    if (worker == 0 && absl::Now() - shown > absl::Milliseconds(200)) {
      shown = absl::Now();
      TANDEM_ASSIGN_OR_RETURN(score, strategy.Evaluate(test));
      absl::MutexLock lock(run.mutex);
      run.outcome->losses.push_back({at, score.loss()});
    }
    absl::MutexLock lock(run.mutex);
    ++run.outcome->steps;
    run.outcome->seconds = at;
  }
  return absl::OkStatus();
}

// Until its workers have ended.
void Serve(Strategy& strategy) {
  while (strategy.TrainStep(Batch(), kRate).ok()) {
  }
}

absl::StatusOr<Outcome> Train(const Way& way) {
  Outcome outcome;
  absl::Mutex mutex;
  const int servers = way.max_staleness.has_value() ? 1 : 0;
  CommunicatorOptions options;
  options.backend = "shm";
  TANDEM_RETURN_IF_ERROR(RunThreadRanks(
      absl::GetFlag(FLAGS_workers) + servers,
      [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(const auto strategy, NewStrategy(way, world));
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        const Run run = {way, absl::Now(), &mutex, &outcome};
        if (world.rank() >= servers) {
          return Work(run, world.rank() - servers, *strategy);
        }
        Serve(*strategy);
        return absl::OkStatus();
      },
      options));
  return outcome;
}

absl::Status Main() {
  ConfigureProcess(/*intra_op_threads=*/1);
  std::vector<std::vector<std::string>> rows = {
      {"", "steps of all workers/s", "samples/s", "loss at the end"}};
  LineChart chart;
  chart.title = absl::StrFormat(
      "%d workers, %.0f ms a step, the last one %.0f times slower",
      absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_step_ms),
      absl::GetFlag(FLAGS_slower));
  chart.x_label = "seconds";
  chart.y_label = "loss of the first worker's values";
  for (const Way& way : Ways()) {
    TANDEM_ASSIGN_OR_RETURN(const Outcome outcome, Train(way));
    const double rate = static_cast<double>(outcome.steps) / outcome.seconds;
    const std::string samples = absl::StrFormat("%.0f", rate * kBatch);
    rows.push_back({way.name, absl::StrFormat("%.0f", rate), samples,
                    absl::StrFormat("%.3f", outcome.losses.back().y)});
    chart.lines.push_back(
        {absl::StrCat(way.name, ": ", samples, " samples/s"), outcome.losses});
  }
  std::fputs(TextTable(rows).c_str(), stdout);
  const std::string path = absl::GetFlag(FLAGS_svg);
  return path.empty() ? absl::OkStatus()
                      : WriteFileAtomically(path, DrawSvg(chart));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  google::InitGoogleLogging(argv[0]);
  return tandem::Conclude("consistency", tandem::Main());
}
