#include "core/flight/dump.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::dump_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
}  // namespace tandem::dump_test
