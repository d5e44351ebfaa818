// What communicators leave in the flight recorder.

#include <ATen/ops/zeros.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/flight/recorder.h"
#include "core/testing/thread_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::call_flights_test {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// The ranks are threads here, and share the process's recorder.
FlightDump NotedBy(const std::function<absl::Status(Communicator&)>& run,
                   const CommunicatorOptions& options = {}) {
  FlightDump before;
  EXPECT_TRUE(FlightRecorder::OfProcess().Read(&before));
  const absl::Status status = RunThreadRanks(3, run, options);
  EXPECT_TRUE(status.ok()) << status;
  FlightDump after;
  EXPECT_TRUE(FlightRecorder::OfProcess().Read(&after));
  after.entries.erase(after.entries.begin(),
                      after.entries.begin() +
                          static_cast<std::ptrdiff_t>(before.entries.size()));
  return after;
}

const FlightGroupFacts& GroupOf(const FlightDump& dump,
                                const FlightEntry& entry) {
  return dump.groups.at(static_cast<size_t>(entry.group));
}

TEST(CallFlightsTest, NoteEveryCollective) {
  const FlightDump dump = NotedBy([](Communicator& world) {
    const FlightPurposeScope purpose({"bucket", 2});
    TANDEM_RETURN_IF_ERROR(world.AllReduceSum(at::zeros({5, 0})));  // none
    TANDEM_RETURN_IF_ERROR(world.AllReduceSum(at::zeros({5, 7})));
    TANDEM_RETURN_IF_ERROR(world.Broadcast(at::zeros({3}, at::kLong), 1));
    TANDEM_RETURN_IF_ERROR(world.AllGather(at::zeros({2})).status());
    return world.Barrier();
  });
  ASSERT_THAT(dump.entries, SizeIs(3 * 4));
  std::map<std::string, int> operations;
  for (const FlightEntry& each : dump.entries) {
    ++operations[each.ToString()];
    EXPECT_EQ(each.state, FlightState::kCompleted) << each.ToString();
    EXPECT_EQ(GroupOf(dump, each).name, "world");
    EXPECT_THAT(GroupOf(dump, each).ranks, ElementsAre(0, 1, 2));
    EXPECT_EQ(GroupOf(dump, each).scheduled, 4);
  }
  const std::map<std::string, int> expected = {
      {"all-reduce #1 (bucket 2) of Float [5, 7]", 3},
      {"broadcast #2 (bucket 2) of Long [3]", 3},
      {"all-gather #3 (bucket 2) of Float [2]", 3},
      {"barrier #4 (bucket 2)", 3}};
  EXPECT_EQ(operations, expected);
}

// Once, though it is there before ranks have compared it.
TEST(CallFlightsTest, NoteWhatIsCheckedOnce) {
  CommunicatorOptions options;
  options.check_collectives = true;
  const FlightDump dump = NotedBy(
      [](Communicator& world) {
        TANDEM_RETURN_IF_ERROR(world.AllReduceSum(at::zeros({0})));
        return world.AllReduceSum(at::zeros({5}));
      },
      options);
  ASSERT_THAT(dump.entries, SizeIs(3 * 2));
  for (const FlightEntry& each : dump.entries) {
    EXPECT_EQ(each.state, FlightState::kCompleted);
    EXPECT_EQ(each.sequence, 1);  // one without elements has no number
  }
}

TEST(CallFlightsTest, NoteMessagesOfSubgroupsByTheJobsNumbers) {
  const FlightDump dump = NotedBy([](Communicator& world) -> absl::Status {
    if (world.rank() == 1) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(const auto pair, world.Subgroup({0, 2}, "pair"));
    const at::Tensor tensor = at::zeros({4});
    TANDEM_ASSIGN_OR_RETURN(PendingCollective message,
                            pair->rank() == 0
                                ? pair->StartSend(tensor, 1, /*tag=*/9)
                                : pair->StartReceive(tensor, 0, /*tag=*/9));
    TANDEM_RETURN_IF_ERROR(message.Wait());
    return pair->Barrier();
  });
  std::vector<std::string> messages;
  for (const FlightEntry& each : dump.entries) {
    EXPECT_EQ(GroupOf(dump, each).name, "pair");
    EXPECT_THAT(GroupOf(dump, each).ranks, ElementsAre(0, 2));
    EXPECT_EQ(each.state, FlightState::kCompleted);
    if (each.kind == FlightKind::kCollective) continue;
    EXPECT_EQ(each.tag, 9);
    EXPECT_EQ(each.sequence, 1);
    EXPECT_GT(each.awaited_ns, 0);
    messages.push_back(each.ToString());
  }
  EXPECT_THAT(messages, testing::UnorderedElementsAre(
                            "send to rank 2 of Float [4]",
                            "receive from rank 0 of Float [4]"));
}

TEST(CallFlightsTest, HoldAnyNumberOfEntries) {
  CallFlights flights;
  EXPECT_TRUE(flights.empty());
  flights.Start();  // nothing
  std::vector<FlightRecorder::Id> ids;
  for (int i = 0; i < 3; ++i) {
    FlightOperation operation;
    operation.kind = FlightKind::kAction;
    ids.push_back(FlightRecorder::OfProcess().Schedule(nullptr, operation));
    flights.Add(ids.back());
  }
  flights.Complete();
  FlightDump dump;
  ASSERT_TRUE(FlightRecorder::OfProcess().Read(&dump));
  int completed = 0;
  for (const FlightEntry& each : dump.entries) {
    if (each.id < ids.front()) continue;
    EXPECT_EQ(each.state, FlightState::kCompleted);
    ++completed;
  }
  EXPECT_EQ(completed, 3);
}

}  // namespace
}  // namespace tandem::call_flights_test
