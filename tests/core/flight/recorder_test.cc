#include "core/flight/recorder.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/flight/dump.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::recorder_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FlightOperation Reduce(absl::Span<const int64_t> sizes) {
  FlightOperation operation;
  operation.name = "all-reduce";
  operation.dtype = "Float";
  operation.sizes = sizes;
  return operation;
}

FlightOperation Message(FlightKind kind, int peer, int tag) {
  FlightOperation operation;
  operation.kind = kind;
  operation.name = kind == FlightKind::kSend ? "send" : "receive";
  operation.peer = peer;
  operation.tag = tag;
  return operation;
}

std::shared_ptr<FlightGroup> Group(std::vector<int> ranks) {
  return std::make_shared<FlightGroup>("data", "data/0", std::move(ranks));
}

FlightDump Read(FlightRecorder& recorder) {
  FlightDump dump;
  EXPECT_TRUE(recorder.Read(&dump));
  return dump;
}

TEST(FlightRecorderTest, HoldsNothingAtFirst) {
  FlightRecorder recorder;
  EXPECT_THAT(Read(recorder).entries, IsEmpty());
  EXPECT_THAT(Read(recorder).groups, IsEmpty());
}

TEST(FlightRecorderTest, FollowsAnEntryThroughItsStates) {
  FlightRecorder recorder;
  recorder.SetStep(4);
  FlightRecorder::Id id = 0;
  {
    const FlightPurposeScope scope({"bucket", 3});
    id = recorder.Schedule(Group({2, 5, 7}), Reduce({5, 0}), 9);
  }
  FlightEntry entry = Read(recorder).entries.at(0);
  EXPECT_EQ(entry.operation, "all-reduce");
  EXPECT_EQ(entry.sequence, 9);
  EXPECT_EQ(entry.dtype, "Float");
  EXPECT_THAT(entry.sizes, ElementsAre(5, 0));
  EXPECT_EQ(entry.what, "bucket");
  EXPECT_EQ(entry.index, 3);
  EXPECT_EQ(entry.step, 4);
  EXPECT_EQ(entry.state, FlightState::kScheduled);
  EXPECT_GT(entry.scheduled_ns, 0);
  EXPECT_EQ(entry.awaited_ns, 0);

  recorder.Start(id);
  recorder.Await(id);
  entry = Read(recorder).entries.at(0);
  EXPECT_EQ(entry.state, FlightState::kStarted);
  EXPECT_GE(entry.started_ns, entry.scheduled_ns);
  EXPECT_GE(entry.awaited_ns, entry.started_ns);
  EXPECT_EQ(entry.completed_ns, 0);

  recorder.Complete(id);
  recorder.Start(id);  // too late
  entry = Read(recorder).entries.at(0);
  EXPECT_EQ(entry.state, FlightState::kCompleted);
  EXPECT_GE(entry.completed_ns, entry.awaited_ns);
}

TEST(FlightRecorderTest, TellsTheGroupAndHowFarItIs) {
  FlightRecorder recorder;
  const auto group = Group({2, 5});
  recorder.Schedule(group, Reduce({1}), 1);
  recorder.Schedule(group, Reduce({1}), 2);
  recorder.Schedule(nullptr, Message(FlightKind::kAction, -1, 0));
  const FlightDump dump = Read(recorder);
  ASSERT_EQ(dump.groups.size(), 1u);
  EXPECT_EQ(dump.groups[0].name, "data");
  EXPECT_EQ(dump.groups[0].id, "data/0");
  EXPECT_THAT(dump.groups[0].ranks, ElementsAre(2, 5));
  EXPECT_EQ(dump.groups[0].scheduled, 2);
  EXPECT_EQ(dump.entries[1].group, 0);
  EXPECT_EQ(dump.entries[2].group, -1);
}

// By peer, direction and tag.
TEST(FlightRecorderTest, CountsMessages) {
  FlightRecorder recorder;
  const auto group = Group({4, 6, 9});
  recorder.Schedule(group, Message(FlightKind::kSend, 1, 7));
  recorder.Schedule(group, Message(FlightKind::kSend, 1, 7));
  recorder.Schedule(group, Message(FlightKind::kSend, 2, 7));
  recorder.Schedule(group, Message(FlightKind::kReceive, 1, 7));
  recorder.Schedule(group, Message(FlightKind::kSend, 1, 8));
  recorder.Schedule(group, Message(FlightKind::kSend, 1, 7));
  std::vector<int64_t> numbers;
  std::vector<int> peers;
  for (const FlightEntry& each : Read(recorder).entries) {
    numbers.push_back(each.sequence);
    peers.push_back(each.peer);
  }
  EXPECT_THAT(numbers, ElementsAre(1, 2, 1, 1, 1, 3));
  EXPECT_THAT(peers, ElementsAre(6, 6, 9, 6, 6, 6));  // the job's numbers
}

TEST(FlightRecorderTest, KeepsTheLast) {
  FlightRecorder recorder(/*capacity=*/3);
  const auto group = Group({0, 1});
  std::vector<FlightRecorder::Id> ids;
  for (int i = 1; i <= 7; ++i) {
    ids.push_back(recorder.Schedule(group, Reduce({i}), i));
  }
  recorder.Complete(ids[3]);  // lost: nobody else's state changes
  recorder.Complete(ids[5]);
  recorder.Complete(-1);
  const std::vector<FlightEntry> entries = Read(recorder).entries;
  ASSERT_EQ(entries.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(entries[i].id, static_cast<int64_t>(4 + i));
    EXPECT_THAT(entries[i].sizes, ElementsAre(5 + i));
  }
  EXPECT_EQ(entries[0].state, FlightState::kScheduled);
  EXPECT_EQ(entries[1].state, FlightState::kCompleted);
}

TEST(FlightRecorderTest, MultipliesWhatItHasNoPlaceFor) {
  FlightRecorder recorder;
  recorder.Schedule(nullptr, Reduce({2, 3, 1, 1, 1, 5, 7, 11}));
  EXPECT_THAT(Read(recorder).entries.at(0).sizes,
              ElementsAre(2, 3, 1, 1, 1, 5 * 7 * 11));
}

TEST(FlightRecorderTest, OutlivesGroups) {
  FlightRecorder recorder;
  auto group = Group({3, 1});
  recorder.Schedule(group, Reduce({1}), 1);
  group = nullptr;
  EXPECT_THAT(Read(recorder).groups.at(0).ranks, ElementsAre(3, 1));
}

TEST(FlightRecorderTest, OfNoEntriesNotesNothing) {
  FlightRecorder recorder(0);
  const FlightRecorder::Id id = recorder.Schedule(Group({0}), Reduce({1}), 1);
  recorder.Start(id);
  recorder.Await(id);
  recorder.Complete(id);
  EXPECT_THAT(Read(recorder).entries, IsEmpty());
}

TEST(FlightRecorderTest, ForgetsWhatWasBeforeAnotherCapacity) {
  FlightRecorder recorder(2);
  const auto group = Group({0});
  const FlightRecorder::Id before = recorder.Schedule(group, Reduce({1}), 1);
  recorder.SetCapacity(3);
  recorder.Complete(before);
  EXPECT_THAT(Read(recorder).entries, IsEmpty());
  for (int i = 2; i <= 5; ++i) recorder.Schedule(group, Reduce({1}), i);
  std::vector<int64_t> kept;
  for (const FlightEntry& each : Read(recorder).entries) {
    kept.push_back(each.sequence);
    EXPECT_EQ(each.state, FlightState::kScheduled);
  }
  EXPECT_THAT(kept, ElementsAre(3, 4, 5));
  recorder.SetCapacity(0);
  EXPECT_EQ(recorder.Schedule(group, Reduce({1}), 6), -1);
  EXPECT_THAT(Read(recorder).entries, IsEmpty());
  recorder.SetCapacity(1);
  EXPECT_EQ(recorder.noted(), 5);
  recorder.Start(recorder.Schedule(group, Reduce({1}), 7));
  EXPECT_EQ(recorder.noted(), 6);
  EXPECT_EQ(Read(recorder).entries.at(0).state, FlightState::kStarted);
}

TEST(FlightRecorderTest, TakesWhatManyThreadsNote) {
  constexpr int kThreads = 7;
  constexpr int kEach = 200;
  FlightRecorder recorder(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&recorder, t] {
      const auto group = Group({t});
      const FlightPurposeScope scope({"bucket", t});
      for (int i = 1; i <= kEach; ++i) {
        const FlightRecorder::Id id = recorder.Schedule(group, Reduce({t}), i);
        recorder.Start(id);
        recorder.Complete(id);
      }
    });
  }
  while (Read(recorder).entries.size() < kThreads * kEach) {
    std::this_thread::yield();
  }
  for (std::thread& each : threads) each.join();
  const FlightDump dump = Read(recorder);
  std::vector<int64_t> seen(kThreads, 0);
  for (const FlightEntry& each : dump.entries) {
    EXPECT_EQ(each.state, FlightState::kCompleted);
    EXPECT_THAT(each.sizes, ElementsAre(each.index));
    EXPECT_EQ(each.sequence, ++seen[static_cast<size_t>(each.index)]);
  }
  EXPECT_THAT(seen, ::testing::Each(kEach));
}

TEST(FlightPurposeScopeTest, InnerOnesHideOuterOnes) {
  EXPECT_STREQ(FlightPurposeScope::Current().what, "");
  const FlightPurposeScope outer({"bucket", 1});
  {
    const FlightPurposeScope inner({"loss"});
    EXPECT_STREQ(FlightPurposeScope::Current().what, "loss");
    EXPECT_EQ(FlightPurposeScope::Current().index, -1);
    std::thread([] {
      EXPECT_STREQ(FlightPurposeScope::Current().what, "");
    }).join();
  }
  EXPECT_EQ(FlightPurposeScope::Current().index, 1);
}

FlightEntry Entry() {
  FlightEntry entry;
  entry.id = 11;
  entry.kind = FlightKind::kReceive;
  entry.operation = "receive";
  entry.group = 0;
  entry.sequence = 3;
  entry.peer = 6;
  entry.tag = 42;
  entry.dtype = "Float";
  entry.sizes = {8, 0, 3};
  entry.what = "activations";
  entry.stage = 1;
  entry.microbatch = 2;
  entry.step = 5;
  entry.state = FlightState::kStarted;
  entry.scheduled_ns = 1700000000000000001;
  entry.started_ns = 1700000000000000002;
  entry.awaited_ns = 1700000000000000003;
  return entry;
}

FlightDump Dump() {
  FlightDump dump;
  dump.rank = 3;
  dump.world_size = 7;
  dump.job = "0123";
  dump.host = "left";
  dump.pid = 99;
  dump.trigger = FlightTrigger::kTimeout;
  dump.reason = "a \"quoted\" reason,\nof two lines";
  dump.dumped_ns = 1700000000000000009;
  dump.groups = {{"pipe", "pipe/0", {3, 6}, 12}};
  dump.entries = {Entry()};
  return dump;
}

TEST(FlightDumpTest, ComesBackAsItWas) {
  const absl::StatusOr<FlightDump> read =
      DecodeFlightDump(EncodeFlightDump(Dump()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(EncodeFlightDump(*read), EncodeFlightDump(Dump()));
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->trigger, FlightTrigger::kTimeout);
  EXPECT_EQ(read->reason, Dump().reason);
  EXPECT_THAT(read->groups.at(0).ranks, ElementsAre(3, 6));
  const FlightEntry& entry = read->entries.at(0);
  EXPECT_EQ(entry.kind, FlightKind::kReceive);
  EXPECT_EQ(entry.awaited_ns, 1700000000000000003);
  EXPECT_THAT(entry.sizes, ElementsAre(8, 0, 3));
}

TEST(FlightDumpTest, MayBeEmpty) {
  const absl::StatusOr<FlightDump> read =
      DecodeFlightDump(EncodeFlightDump(FlightDump()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->entries, IsEmpty());
}

// A reason may quote what somebody else sent.
TEST(FlightDumpTest, TakesAnyBytesAsReason) {
  FlightDump dump = Dump();
  dump.reason = "\xff\xfe";
  EXPECT_TRUE(DecodeFlightDump(EncodeFlightDump(dump)).ok());
}

TEST(FlightDumpTest, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[]", "3", "null", "{}", "\xff"}) {
    EXPECT_EQ(DecodeFlightDump(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
  const std::string deep(100000, '[');
  EXPECT_FALSE(DecodeFlightDump(deep).ok());
}

// Each field missing, of each other type, and out of range.
TEST(FlightDumpTest, RefusesFieldsThatAreWrong) {
  const auto good = nlohmann::json::parse(EncodeFlightDump(Dump()));
  const std::vector<nlohmann::json> wrong = {nullptr,
                                             true,
                                             -2,
                                             1.5,
                                             nlohmann::json::array({"x"}),
                                             nlohmann::json::object(),
                                             18446744073709551615u};
  int refused = 0;
  const auto expect_refused = [&](const nlohmann::json& bad,
                                  const std::string& key) {
    const absl::Status status = DecodeFlightDump(bad.dump()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(status.message()), HasSubstr(key));
    ++refused;
  };
  for (const char* where : {"", "/groups/0", "/entries/0"}) {
    const nlohmann::json::json_pointer pointer(where);
    for (const auto& [key, value] : good.at(pointer).items()) {
      nlohmann::json bad = good;
      bad.at(pointer).erase(key);
      expect_refused(bad, key);
      for (const nlohmann::json& each : wrong) {
        bad.at(pointer)[key] = each;
        expect_refused(bad, key);
      }
    }
  }
  EXPECT_EQ(refused, (11 + 4 + 19) * 8);
}

TEST(FlightDumpTest, RefusesNumbersThatPointNowhere) {
  const auto good = nlohmann::json::parse(EncodeFlightDump(Dump()));
  const auto refusal = [&](const char* where, int value) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(where)] = value;
    return std::string(DecodeFlightDump(bad.dump()).status().message());
  };
  EXPECT_THAT(refusal("/entries/0/group", 1), HasSubstr("entries[0].group"));
  EXPECT_THAT(refusal("/entries/0/group", -1), HasSubstr("only an action"));
  EXPECT_THAT(refusal("/entries/0/peer", 7), HasSubstr("0 to 6"));
  EXPECT_THAT(refusal("/entries/0/peer", -1), HasSubstr("peer"));
  EXPECT_THAT(refusal("/groups/0/ranks/1", 7), HasSubstr("groups[0].ranks"));
  EXPECT_THAT(refusal("/rank", 7), HasSubstr("rank"));
  EXPECT_THAT(refusal("/version", 2), HasSubstr("version"));
}

TEST(FlightEntryTest, IsToldInWords) {
  EXPECT_EQ(Entry().ToString(),
            "receive from rank 6 (activations of microbatch 2, stage 1, step "
            "5) of Float [8, 0, 3]");
  FlightEntry reduce;
  reduce.operation = "all-reduce";
  reduce.sequence = 3;
  reduce.what = "bucket";
  reduce.index = 0;
  reduce.dtype = "Float";
  EXPECT_EQ(reduce.ToString(), "all-reduce #3 (bucket 0) of Float []");
  FlightEntry barrier;
  barrier.operation = "barrier";
  barrier.sequence = 1;
  EXPECT_EQ(barrier.ToString(), "barrier #1");
  FlightEntry action;
  action.kind = FlightKind::kAction;
  action.operation = "forward";
  action.microbatch = 2;
  action.stage = 0;
  EXPECT_EQ(action.ToString(), "forward of microbatch 2 in stage 0");
}

}  // namespace
}  // namespace tandem::recorder_test
