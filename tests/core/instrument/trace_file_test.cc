// The file's part of one rank, and the whole file: what viewers show is as it
// was traced, and what they would leave out is not there.

#include "core/instrument/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/instrument/clock_offset.h"
#include "core/instrument/trace.h"
#include "tests/core/instrument/trace_events.h"
#include "tests/core/testing/chrome_trace.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;
using std::chrono::microseconds;

TraceEvent Sending(TraceEvent event, const std::string& message) {
  event.sends = {message};
  return event;
}

TraceEvent Receiving(TraceEvent event, const std::string& message) {
  event.receives = {message};
  return event;
}

ChromeTrace Read(const std::string& text) {
  const auto trace = ReadChromeTrace(text);
  EXPECT_TRUE(trace.ok()) << trace.status() << "\n" << text;
  return trace.value_or(ChromeTrace());
}

ChromeTrace Joined(const std::vector<std::string>& texts,
                   const std::vector<ClockOffset>& offsets = {}) {
  const auto joined = JoinTraces(texts, offsets);
  EXPECT_TRUE(joined.ok()) << joined.status();
  return Read(joined.value_or(""));
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

TEST(TraceFileTest, JsonHoldsEveryFieldOfAnEvent) {
  TraceEvent event = Event("communication", "all-reduce", 1000, 1250);
  event.category = "collective";
  event.args = {{"bytes", "4096"}};
  const Json file = Json::parse(TraceToJson({event}, {3}));
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

TEST(TraceFileTest, AMomentIsAnInstant) {
  const Json file =
      Json::parse(TraceToJson({Event("compute", "bucket ready", 5, 5)}, {0}));
  const Json& json = file["traceEvents"].back();
  EXPECT_EQ(json["ph"], "i");
  EXPECT_EQ(json["ts"], 5.0);
  EXPECT_FALSE(json.contains("dur"));
}

TEST(TraceFileTest, TimesAreExactToTheNanosecondAfterAYearOfUptime) {
  TraceEvent event = Event("compute", "x", 0, 0);
  event.start = TraceEvent::Clock::time_point(std::chrono::hours(24 * 365) +
                                              std::chrono::nanoseconds(125));
  event.end = event.start + std::chrono::nanoseconds(250);
  const Json file = Json::parse(TraceToJson({event}, {0}));
  const Json& json = file["traceEvents"].back();
  EXPECT_NEAR(json["ts"].get<double>() - 31536000e6, 0.125, 0.004);
  EXPECT_EQ(json["dur"], 0.25);
}

TEST(TraceFileTest, SlicesOfARowNest) {
  // Added out of order; "c" overlaps "a" and does not lie inside it.
  const Json file = Json::parse(TraceToJson(
      {Event("communication", "d", 30, 40), Event("compute", "step", 1, 50),
       Event("communication", "b", 12, 18), Event("communication", "c", 15, 25),
       Event("communication", "a", 10, 20), Event("compute", "forward", 1, 20)},
      {0}));
  auto rows = RowsOf(file);
  EXPECT_THAT(rows["compute"], ElementsAre("step", "forward"));
  EXPECT_THAT(rows["communication"], ElementsAre("a", "b", "d"));
  EXPECT_THAT(rows["communication (2)"], ElementsAre("c"));
  EXPECT_THAT(rows, SizeIs(3));
}

TEST(TraceFileTest, OneThatBeginsAsAnotherEndsStaysOnItsRow) {
  auto rows = RowsOf(Json::parse(TraceToJson(
      {Event("compute", "forward", 0, 10), Event("compute", "backward", 10, 30),
       Event("compute", "step", 30, 31)},
      {0})));
  EXPECT_THAT(rows["compute"], ElementsAre("forward", "backward", "step"));
}

TEST(TraceFileTest, NamesOfAnyBytesGiveValidJson) {
  const std::string text =
      TraceToJson({Event("com\"pute", "a\\b\n\xff", 0, 1)}, {0});
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(file.is_object()) << text;
  EXPECT_EQ(RowsOf(file).count("com\"pute"), 1);
}

TEST(TraceFileTest, RanksAreJoinedIntoOneFile) {
  const auto joined =
      JoinTraces({TraceToJson({Event("compute", "forward", 0, 10)}, {0}),
                  TraceToJson({}, {1}),
                  TraceToJson({Event("compute", "backward", 5, 20)}, {2})});
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

TEST(TraceFileTest, WhatIsNoTraceIsRefusedByItsPlace) {
  for (
      const char* text :
      {"", "[]", "{}", "{\"traceEvents\":3}", "{", "{\"traceEvents\":[]}",
       R"({"traceEvents":[3],"otherData":{"ranks":[{}]}})",
       R"({"traceEvents":[{"ph":"X","ts":"1"}],"otherData":{"ranks":[{}]}})"}) {
    const absl::Status status =
        JoinTraces({TraceToJson({}, {0}), text}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(status.message(), HasSubstr("text 1 is no trace"));
  }
}

TEST(TraceFileTest, AProcessHasItsHostsName) {
  const ChromeTrace trace =
      Joined({TraceToJson({}, {0, "alder"}), TraceToJson({}, {1, "birch", 7}),
              TraceToJson({}, {2})});
  EXPECT_EQ(trace.processes,
            (std::map<int, std::string>{
                {0, "rank 0 (alder)"}, {1, "rank 1 (birch)"}, {2, "rank 2"}}));
  ASSERT_EQ(trace.ranks.size(), 3);
  EXPECT_EQ(trace.ranks[1], Json({{"rank", 1},
                                  {"host", "birch"},
                                  {"dropped_events", 7},
                                  {"clock_offset_us", 0.0},
                                  {"clock_uncertainty_us", 0.0}}));
}

TEST(TraceFileTest, ACounterHasItsSeriesAndNoThread) {
  TraceEvent sample;
  sample.name = "memory of cuda:0";
  sample.start = At(4);
  sample.values = {{"parameters", 1024}, {"gradients", 0.5}};
  const ChromeTrace trace =
      Joined({TraceToJson({Event("device 0", "forward", 1, 9), sample}, {5})});
  EXPECT_THAT(trace.slices, SizeIs(1));
  ASSERT_THAT(trace.samples, SizeIs(1));
  EXPECT_EQ(trace.samples[0].process, 5);
  EXPECT_EQ(trace.samples[0].counter, "memory of cuda:0");
  EXPECT_EQ(trace.samples[0].time, 4);
  EXPECT_EQ(trace.samples[0].values,
            (std::map<std::string, double>{{"gradients", 0.5},
                                           {"parameters", 1024}}));
}

// Two go between two ranks, and one between two devices of a rank.
TEST(TraceFileTest, MessagesLeadFromWhatSendsThemToWhatTakesThem) {
  const std::string first = TraceToJson(
      {Sending(Event("device 0", "forward 0", 0, 10), "0 there"),
       Sending(Event("device 0", "forward 1", 10, 20), "1 there"),
       Receiving(Event("device 0", "backward 0", 50, 60), "0 back"),
       Receiving(Event("device 1", "forward 1 of stage 1", 21, 30), "1 there")},
      {0});
  const std::string second = TraceToJson(
      {Receiving(
          Sending(Event("device 2", "backward 0 of stage 1", 12, 40), "0 back"),
          "0 there")},
      {1});
  const ChromeTrace trace = Joined({first, second});
  std::map<std::string, std::string> flows;
  for (const ChromeFlow& each : trace.flows) {
    flows[each.from.name] = each.to.name;
  }
  EXPECT_EQ(flows, (std::map<std::string, std::string>{
                       {"forward 0", "backward 0 of stage 1"},
                       {"forward 1", "forward 1 of stage 1"},
                       {"backward 0 of stage 1", "backward 0"}}));
}

// One that takes no time that the clock tells is a slice all the same: viewers
// bind flows to slices.
TEST(TraceFileTest, AMessageOfAMomentHasASlice) {
  const ChromeTrace trace =
      Joined({TraceToJson({Sending(Event("device 0", "a", 5, 5), "m"),
                           Receiving(Event("device 1", "b", 6, 6), "m")},
                          {0})});
  ASSERT_THAT(trace.flows, SizeIs(1));
  EXPECT_EQ(trace.flows[0].from.name, "a");
  EXPECT_EQ(trace.flows[0].to.name, "b");
}

// Where a trace begins or ends, and where events were dropped.
TEST(TraceFileTest, AMessageOfWhichOneEndIsMissingIsLeftOut) {
  const ChromeTrace trace = Joined(
      {TraceToJson({Sending(Event("device 0", "a", 0, 5), "lost"),
                    Sending(Event("device 0", "b", 5, 8), "twice"),
                    Sending(Event("device 0", "c", 8, 9), "twice")},
                   {0}),
       TraceToJson({Receiving(Event("device 1", "d", 9, 12), "twice"),
                    Receiving(Event("device 1", "e", 12, 13), "never sent")},
                   {1})});
  EXPECT_THAT(trace.slices, SizeIs(5));
  EXPECT_THAT(trace.flows, IsEmpty());
}

// Rank 1's clock is 1 s behind: by itself its end of the message would be
// earlier than the beginning.
TEST(TraceFileTest, TimesOfAnotherHostAreByTheFirstOnesClock) {
  constexpr int kBehind = 1000000;
  const std::string first = TraceToJson(
      {Sending(Event("device 0", "forward", 2000000, 2000100), "m")}, {0, "a"});
  const std::string second =
      TraceToJson({Receiving(Event("device 1", "forward of stage 1",
                                   2000150 - kBehind, 2000200 - kBehind),
                             "m")},
                  {1, "b"});
  const ClockOffset offset = {microseconds(kBehind), microseconds(20)};
  const ChromeTrace trace = Joined({first, second}, {ClockOffset(), offset});
  ASSERT_THAT(trace.flows, SizeIs(1));
  EXPECT_EQ(trace.flows[0].to.begin, 2000150);
  EXPECT_EQ(trace.flows[0].to.end, 2000200);
  EXPECT_EQ(trace.ranks[1]["clock_offset_us"], 1e6);
  EXPECT_EQ(trace.ranks[1]["clock_uncertainty_us"], 20);
  EXPECT_EQ(trace.ranks[0]["clock_offset_us"], 0);
  const auto unaligned = JoinTraces({first, second});
  EXPECT_THAT(ReadChromeTrace(*unaligned).status().message(),
              HasSubstr("flow 1 ends before it begins"));
}

// The reader of these tests finds what is wrong.
TEST(ChromeTraceTest, WhatIsNotOfTheFormatIsNamed) {
  const std::string slice =
      R"({"ph":"X","pid":0,"tid":1,"ts":5,"dur":5,"name":"a","cat":"c"})";
  const std::string names =
      R"({"ph":"M","pid":0,"tid":0,"name":"process_name","args":{"name":"p"}},)"
      R"({"ph":"M","pid":0,"tid":1,"name":"thread_name","args":{"name":"t"}},)";
  const auto status = [](const std::string& events) {
    return ReadChromeTrace("{\"traceEvents\":[" + events + "]}").status();
  };
  EXPECT_TRUE(status(names + slice).ok()) << status(names + slice);
  const std::pair<std::string, const char*> cases[] = {
      {slice, "has slices and no name"},
      {names + R"({"pid":0,"tid":1,"ts":5,"name":"a","cat":"c"})", "no phase"},
      {names + R"({"ph":"X","tid":1,"ts":5,"dur":5,"name":"a","cat":"c"})",
       "no process"},
      {names + R"({"ph":"X","pid":0,"tid":1,"dur":5,"name":"a","cat":"c"})",
       "no time"},
      {names + R"({"ph":"X","pid":0,"tid":1,"ts":5,"name":"a","cat":"c"})",
       "no length"},
      {names + slice +
           R"(,{"ph":"X","pid":0,"tid":1,"ts":8,"dur":5,"name":"b","cat":"c"})",
       "b lies neither inside nor outside of a"},
      {names + slice +
           R"(,{"ph":"X","pid":0,"tid":1,"ts":1,"dur":1,"name":"b","cat":"c"})",
       "do not ascend"},
      {R"({"ph":"C","pid":0,"tid":0,"ts":5,"name":"m","cat":"c",)"
       R"("args":{"x":"1"}})",
       "a value is no number"},
      {names + slice +
           R"(,{"ph":"s","id":1,"pid":0,"tid":1,"ts":6,"name":"message",)"
           R"("cat":"message"})",
       "flow 1 has one end alone"},
      {names + slice +
           R"(,{"ph":"s","id":1,"pid":0,"tid":1,"ts":1,"name":"message",)"
           R"("cat":"message"},{"ph":"f","bp":"e","id":1,"pid":0,"tid":1,)"
           R"("ts":6,"name":"message","cat":"message"})",
       "an end of flow 1 lies in no slice"},
  };
  for (const auto& [events, what] : cases) {
    EXPECT_THAT(status(events).message(), HasSubstr(what)) << events;
  }
}

}  // namespace
}  // namespace tandem
