#include "parallel/report/pipeline_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/instrument/trace.h"
#include "core/instrument/trace_file.h"
#include "parallel/schedule/schedules.h"
#include "tests/core/testing/chrome_trace.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

ActionTime TimeOf(const Action& action, int begin) {
  const ActionTime::Clock::time_point zero;
  return {action, zero + milliseconds(begin), zero + milliseconds(begin + 1),
          zero + milliseconds(begin + 3), zero + milliseconds(begin + 4)};
}

std::vector<TraceEvent> TraceOf(const PipelineTimeline& timeline,
                                const Schedule& schedule,
                                const std::string& step = "step 1") {
  Trace trace;
  trace.Start();
  AddToTrace(timeline, schedule, step, trace);
  return trace.Stop();
}

TEST(PipelineTraceTest, ShowsWhatEachDeviceComputed) {
  const PipelineTimeline timeline = {
      {},  // of another rank
      {TimeOf({ActionKind::kForward, 1, 3}, 0),
       TimeOf({ActionKind::kBackward, 1, 3}, 10),
       TimeOf({ActionKind::kBackwardInput, 1, 0}, 20),
       TimeOf({ActionKind::kBackwardWeight, 1, 0}, 30)}};
  std::vector<std::string> names;
  for (const TraceEvent& each : TraceOf(timeline, *GPipe({2, 1, 4}))) {
    EXPECT_EQ(each.track, "device 1");
    EXPECT_EQ(each.end - each.start, milliseconds(2)) << each.name;
    names.push_back(each.name);
  }
  EXPECT_THAT(names,
              ElementsAre("forward 3 of stage 1", "backward 3 of stage 1",
                          "backward 0 of stage 1, input",
                          "backward 0 of stage 1, weights"));
}

TEST(PipelineTraceTest, OneDeviceAloneSendsNothing) {
  const PipelineTimeline timeline = {
      {TimeOf({ActionKind::kForward, 0, 0}, 0),
       TimeOf({ActionKind::kBackward, 0, 0}, 9)}};
  for (const TraceEvent& each : TraceOf(timeline, *GPipe({1, 1, 1}))) {
    EXPECT_THAT(each.sends, IsEmpty());
    EXPECT_THAT(each.receives, IsEmpty());
  }
}

// Every action of a schedule, one after the other in an order that it allows.
PipelineTimeline InTurns(const Schedule& schedule) {
  PipelineTimeline timeline(schedule.actions.size());
  std::vector<size_t> done(schedule.actions.size());
  std::set<std::string> ended;
  const auto name = [](bool forward, int stage, int microbatch) {
    return (forward ? "F" : "B") + std::to_string(stage) + "." +
           std::to_string(microbatch);
  };
  int now = 0;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (size_t device = 0; device < done.size(); ++device) {
      if (done[device] == schedule.actions[device].size()) continue;
      goes_on = true;
      const Action& next = schedule.actions[device][done[device]];
      const bool forward = IsForward(next.kind);
      const bool last = next.stage + 1 == schedule.stages;
      const int before = forward ? next.stage - 1 : next.stage + 1;
      const bool waits =
          (forward ? next.stage > 0 : !last && GivesInputGradient(next.kind)) &&
          ended.count(name(forward, before, next.microbatch)) == 0;
      if (waits) continue;
      timeline[device].push_back(TimeOf(next, now));
      now += 5;
      ++done[device];
      if (forward || GivesInputGradient(next.kind)) {
        ended.insert(name(forward, next.stage, next.microbatch));
      }
    }
  }
  return timeline;
}

// The arrows of a step whose devices are each on a rank of its own.
std::multiset<std::pair<std::string, std::string>> FlowsOf(
    const Schedule& schedule) {
  const PipelineTimeline all = InTurns(schedule);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    PipelineTimeline own(all.size());
    own[rank] = all[rank];
    texts.push_back(
        TraceToJson(TraceOf(own, schedule), {static_cast<int>(rank)}));
  }
  const auto joined = JoinTraces(texts);
  EXPECT_TRUE(joined.ok()) << joined.status();
  const auto trace = ReadChromeTrace(*joined);
  EXPECT_TRUE(trace.ok()) << trace.status();
  std::multiset<std::pair<std::string, std::string>> flows;
  for (const ChromeFlow& each : trace.value_or(ChromeTrace()).flows) {
    EXPECT_NE(each.from.process, each.to.process);
    flows.emplace(each.from.name, each.to.name);
  }
  return flows;
}

TEST(PipelineTraceTest, EveryMessageLeadsToTheActionThatTakesIt) {
  std::multiset<std::pair<std::string, std::string>> expected;
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    const std::string number = std::to_string(microbatch);
    for (int stage = 0; stage < 2; ++stage) {
      const std::string one = number + " of stage " + std::to_string(stage);
      const std::string next =
          number + " of stage " + std::to_string(stage + 1);
      expected.emplace("forward " + one, "forward " + next);
      expected.emplace("backward " + next, "backward " + one);
    }
  }
  EXPECT_EQ(FlowsOf(*GPipe({3, 1, 3})), expected);
  EXPECT_EQ(FlowsOf(*OneFOneB({3, 1, 3})), expected);
}

// The input's gradient is sent, and nothing that stays on its device: the last
// stages of both chunks of a V lie on one.
TEST(PipelineTraceTest, WhatStaysOnADeviceIsNoMessage) {
  const auto flows = FlowsOf(*ZeroBubbleV({2, 2, 3}));
  EXPECT_EQ(flows.size(), 3 * 2 * 2u);
  EXPECT_EQ(flows.count({"forward 0 of stage 0", "forward 0 of stage 1"}), 1u);
  EXPECT_EQ(flows.count({"forward 0 of stage 1", "forward 0 of stage 2"}), 0u);
  EXPECT_EQ(flows.count({"backward 0 of stage 1, input",
                         "backward 0 of stage 0, input"}),
            1u);
}

TEST(PipelineTraceTest, MessagesOfStepsAreTold) {
  const Schedule schedule = *GPipe({2, 1, 1});
  const PipelineTimeline timeline = InTurns(schedule);
  std::set<std::string> names;
  for (const char* step : {"step 1", "step 2"}) {
    for (const TraceEvent& each : TraceOf(timeline, schedule, step)) {
      for (const std::string& sent : each.sends) {
        EXPECT_TRUE(names.insert(sent).second) << sent;
      }
    }
  }
  EXPECT_EQ(names.size(), 4u);
}

}  // namespace
}  // namespace tandem
