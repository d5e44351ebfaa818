#include "tools/bench/measure/flight_cost.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "core/flight/recorder.h"

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

}  // namespace

double NanosecondsOfFlightEntry(int threads) {
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

}  // namespace tandem
