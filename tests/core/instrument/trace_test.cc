#include "core/instrument/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/testing/on_threads.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

TraceEvent::Clock::time_point At(int microseconds) {
  return TraceEvent::Clock::time_point(std::chrono::microseconds(microseconds));
}

TraceEvent Event(const std::string& track, const std::string& name, int start,
                 int end) {
  TraceEvent event;
  event.track = track;
  event.name = name;
  event.start = At(start);
  event.end = At(end);
  return event;
}

// The names of events by thread name.
std::map<std::string, std::vector<std::string>> RowsOf(const Json& file) {
  std::map<int, std::string> threads;
  std::map<std::string, std::vector<std::string>> rows;
  for (const Json& event : file["traceEvents"]) {
    const int thread = event["tid"];
    if (event["name"] == "thread_name") threads[thread] = event["args"]["name"];
    if (event["ph"] != "M") rows[threads[thread]].push_back(event["name"]);
  }
  return rows;
}

TEST(TraceTest, ItCollectsOnlyWhileItIsOn) {
  Trace trace;
  EXPECT_FALSE(trace.is_on());
  trace.Add(Event("compute", "before", 0, 1));
  trace.Start();
  EXPECT_TRUE(trace.is_on());
  trace.Add(Event("compute", "during", 0, 1));
  const std::vector<TraceEvent> events = trace.Stop();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].name, "during");
  trace.Add(Event("compute", "after", 0, 1));
  EXPECT_THAT(trace.Stop(), IsEmpty());
}

TEST(TraceTest, StartForgetsWhatWasCollected) {
  Trace trace;
  trace.Start();
  trace.Add(Event("compute", "old", 0, 1));
  trace.Start();
  EXPECT_THAT(trace.Stop(), IsEmpty());
}

TEST(TraceTest, AScopeIsRecordedFromItsBeginningToItsEnd) {
  { TraceScope off("compute", "off"); }
  Trace::OfProcess().Start();
  const auto before = TraceEvent::Clock::now();
  {
    TraceScope outer("compute", "outer");
    TraceScope inner("compute", "inner");
  }
  const auto after = TraceEvent::Clock::now();
  const std::vector<TraceEvent> events = Trace::OfProcess().Stop();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].name, "inner");
  EXPECT_EQ(events[1].name, "outer");
  EXPECT_LE(before, events[1].start);
  EXPECT_LE(events[1].start, events[0].start);
  EXPECT_LE(events[0].end, events[1].end);
  EXPECT_LE(events[1].end, after);
}

TEST(TraceTest, ThreadsAddAtTheSameTime) {
  Trace trace;
  trace.Start();
  OnThreads(4, [&](int) {
    for (int i = 0; i < 997; ++i) trace.Add(Event("compute", "x", i, i + 1));
  });
  EXPECT_THAT(trace.Stop(), SizeIs(4 * 997));
}

TEST(TraceTest, JsonHoldsEveryFieldOfAnEvent) {
  TraceEvent event = Event("communication", "all-reduce", 1000, 1250);
  event.category = "collective";
  event.args = {{"bytes", "4096"}};
  const Json file = Json::parse(TraceToJson({event}, 3));
  const Json& json = file["traceEvents"].back();
  EXPECT_EQ(json, Json({{"ph", "X"},
                        {"pid", 3},
                        {"tid", 1},
                        {"ts", 1000.0},
                        {"dur", 250.0},
                        {"name", "all-reduce"},
                        {"cat", "collective"},
                        {"args", {{"bytes", "4096"}}}}));
  EXPECT_EQ(file["traceEvents"][0]["name"], "process_name");
  EXPECT_EQ(file["traceEvents"][0]["args"]["name"], "rank 3");
  EXPECT_THAT(RowsOf(file)["communication"], ElementsAre("all-reduce"));
}

TEST(TraceTest, AMomentIsAnInstant) {
  const Json file =
      Json::parse(TraceToJson({Event("compute", "bucket ready", 5, 5)}, 0));
  const Json& json = file["traceEvents"].back();
  EXPECT_EQ(json["ph"], "i");
  EXPECT_EQ(json["ts"], 5.0);
  EXPECT_FALSE(json.contains("dur"));
}

TEST(TraceTest, TimesAreExactToTheNanosecondAfterAYearOfUptime) {
  TraceEvent event = Event("compute", "x", 0, 0);
  event.start = TraceEvent::Clock::time_point(std::chrono::hours(24 * 365) +
                                              std::chrono::nanoseconds(125));
  event.end = event.start + std::chrono::nanoseconds(250);
  const Json file = Json::parse(TraceToJson({event}, 0));
  const Json& json = file["traceEvents"].back();
  EXPECT_NEAR(json["ts"].get<double>() - 31536000e6, 0.125, 0.004);
  EXPECT_EQ(json["dur"], 0.25);
}

TEST(TraceTest, SlicesOfARowNest) {
  // Added out of order; "c" overlaps "a" and does not lie inside it.
  const Json file = Json::parse(TraceToJson(
      {Event("communication", "d", 30, 40), Event("compute", "step", 1, 50),
       Event("communication", "b", 12, 18), Event("communication", "c", 15, 25),
       Event("communication", "a", 10, 20), Event("compute", "forward", 1, 20)},
      0));
  auto rows = RowsOf(file);
  EXPECT_THAT(rows["compute"], ElementsAre("step", "forward"));
  EXPECT_THAT(rows["communication"], ElementsAre("a", "b", "d"));
  EXPECT_THAT(rows["communication (2)"], ElementsAre("c"));
  EXPECT_THAT(rows, SizeIs(3));
}

TEST(TraceTest, OneThatBeginsAsAnotherEndsStaysOnItsRow) {
  auto rows = RowsOf(Json::parse(TraceToJson(
      {Event("compute", "forward", 0, 10), Event("compute", "backward", 10, 30),
       Event("compute", "step", 30, 31)},
      0)));
  EXPECT_THAT(rows["compute"], ElementsAre("forward", "backward", "step"));
}

TEST(TraceTest, NamesOfAnyBytesGiveValidJson) {
  const std::string text =
      TraceToJson({Event("com\"pute", "a\\b\n\xff", 0, 1)}, 0);
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(file.is_object()) << text;
  EXPECT_EQ(RowsOf(file).count("com\"pute"), 1);
}

TEST(TraceTest, RanksAreJoinedIntoOneFile) {
  const auto joined = JoinTraces(
      {TraceToJson({Event("compute", "forward", 0, 10)}, 0), TraceToJson({}, 1),
       TraceToJson({Event("compute", "backward", 5, 20)}, 2)});
  ASSERT_TRUE(joined.ok()) << joined.status();
  std::map<int, std::string> processes;
  std::map<int, std::vector<std::string>> names;
  const Json file = Json::parse(*joined);
  for (const Json& event : file["traceEvents"]) {
    const int rank = event["pid"];
    if (event["name"] == "process_name") {
      processes[rank] = event["args"]["name"];
    }
    if (event["ph"] == "X") names[rank].push_back(event["name"]);
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{
                           {0, "rank 0"}, {1, "rank 1"}, {2, "rank 2"}}));
  EXPECT_THAT(names[0], ElementsAre("forward"));
  EXPECT_THAT(names[2], ElementsAre("backward"));
}

TEST(TraceTest, WhatIsNoTraceIsRefusedByItsPlace) {
  for (const char* text : {"", "[]", "{}", "{\"traceEvents\":3}", "{"}) {
    const absl::Status status = JoinTraces({TraceToJson({}, 0), text}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(status.message(), HasSubstr("text 1 is no trace"));
  }
}

}  // namespace
}  // namespace tandem
