// What the flight recorder costs: nanoseconds for each entry from its start to
// its end, and what that is of a training step.
//
//   bazel run -c opt //tools/bench:flight_benchmark
//   bazel run -c opt //tools/bench:flight_benchmark -- --threads=4
//
// --step_ms and --entries describe the step: as they stand, 2 ms with 16
// collectives, which is more often than any case of docs/performance.md.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "core/flight/recorder.h"

ABSL_FLAG(int, threads, 1, "that note at the same time");
ABSL_FLAG(int, rounds, 15, "of which the median is shown");
ABSL_FLAG(double, step_ms, 2, "of the step that the cost is compared with");
ABSL_FLAG(int, entries, 16, "of such a step");

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

// Nanoseconds an entry, as each thread sees it.
double TimeRound(FlightRecorder& recorder, int threads) {
  const auto start = Clock::now();
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] { NoteMany(recorder); });
  }
  for (std::thread& each : running) each.join();
  const std::chrono::duration<double, std::nano> took = Clock::now() - start;
  return took.count() / kEntries;
}

void Run() {
  FlightRecorder recorder;
  std::vector<double> rounds;
  for (int i = 0; i < std::max(1, absl::GetFlag(FLAGS_rounds)); ++i) {
    rounds.push_back(TimeRound(recorder, absl::GetFlag(FLAGS_threads)));
  }
  std::sort(rounds.begin(), rounds.end());
  const double median = rounds[rounds.size() / 2];
  const double step_ns = absl::GetFlag(FLAGS_step_ms) * 1e6;
  std::printf("%.0f ns an entry, %.3f %% of a step of %g ms with %d\n", median,
              100 * median * absl::GetFlag(FLAGS_entries) / step_ns,
              absl::GetFlag(FLAGS_step_ms), absl::GetFlag(FLAGS_entries));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  tandem::Run();
}
