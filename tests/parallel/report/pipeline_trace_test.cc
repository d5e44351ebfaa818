#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "parallel/report/pipeline_times.h"

namespace tandem::pipeline_trace_test {
namespace {

using std::chrono::milliseconds;

ActionTime TimeOf(const Action& action, int begin) {
  const ActionTime::Clock::time_point zero;
  return {action, zero + milliseconds(begin), zero + milliseconds(begin + 1),
          zero + milliseconds(begin + 3), zero + milliseconds(begin + 4)};
}

TEST(PipelineTrace, ShowsWhatEachDeviceComputed) {
  const PipelineTimeline timeline = {
      {},  // of another rank
      {TimeOf({ActionKind::kForward, 1, 3}, 0),
       TimeOf({ActionKind::kBackward, 1, 3}, 10),
       TimeOf({ActionKind::kBackwardInput, 2, 0}, 20),
       TimeOf({ActionKind::kBackwardWeight, 2, 0}, 30)}};
  Trace trace;
  trace.Start();
  AddToTrace(timeline, trace);
  std::vector<std::string> names;
  for (const TraceEvent& each : trace.Stop()) {
    EXPECT_EQ(each.track, "device 1");
    EXPECT_EQ(each.end - each.start, milliseconds(2)) << each.name;
    names.push_back(each.name);
  }
  EXPECT_THAT(names, testing::ElementsAre("forward 3 of stage 1",
                                          "backward 3 of stage 1",
                                          "backward 0 of stage 2, input",
                                          "backward 0 of stage 2, weights"));
}

}  // namespace
}  // namespace tandem::pipeline_trace_test
