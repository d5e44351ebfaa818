// Communicator::Abort: what the others and the rank itself see.

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/flight/recorder.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"

namespace tandem::abort_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Longer than the test may take: nothing here ends by timeout.
CommunicatorOptions Patient() {
  CommunicatorOptions options;
  options.timeout = std::chrono::minutes(10);
  return options;
}

const absl::Status& DiskFull() {
  static const auto* const status =
      new absl::Status(absl::StatusCode::kResourceExhausted, "disk full");
  return *status;
}

void ExpectToldOfRank1(const absl::Status& status, const std::string& what) {
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(what), HasSubstr("rank 1 gave up: disk full"),
                    Not(HasSubstr("connection"))));
}

TEST(AbortTest, ThoseThatWaitAreToldTheReason) {
  absl::BlockingCounter about_to_wait(2);
  ExpectOk(RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        if (world.rank() == 1) {
          about_to_wait.Wait();
          world.Abort(DiskFull());
          EXPECT_EQ(world.Barrier(), DiskFull());
          return absl::OkStatus();
        }
        at::Tensor tensor = at::ones({997});
        TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                                world.StartAllReduceSum(tensor));
        about_to_wait.DecrementCount();
        ExpectToldOfRank1(
            pending.Wait(),
            absl::StrCat("all-reduce #2 of group \"world\" on rank ",
                         world.rank(), " of 3 failed"));
        return absl::OkStatus();
      },
      Patient()));
}

TEST(AbortTest, ThoseThatComeLaterAreToldTheReason) {
  absl::Notification aborted;
  absl::BlockingCounter others(2);
  ExpectOk(RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        if (world.rank() == 1) {
          others.Wait();
          world.Abort(DiskFull());
          world.Abort(absl::InternalError("a second time"));
          aborted.Notify();
          return absl::OkStatus();
        }
        others.DecrementCount();  // out of the barrier
        aborted.WaitForNotification();
        ExpectToldOfRank1(world.Barrier(), "barrier #2");
        ExpectToldOfRank1(world.AllReduceSum(at::ones({5})), "barrier #2");
        return absl::OkStatus();
      },
      Patient()));
}

TEST(AbortTest, WhatTheRankItselfHasStartedEndsAtOnce) {
  ExpectOk(RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() == 2) {
          // Whether it is told while it waits or when it starts.
          ExpectToldOfRank1(world.Barrier(), "barrier #1");
          return absl::OkStatus();
        }
        std::vector<PendingCollective> pending;
        for (int i = 0; i < 5; ++i) {
          auto started = world.StartAllReduceSum(at::ones({997}));
          if (started.ok()) pending.push_back(*std::move(started));
        }
        if (world.rank() == 1) {
          pending.pop_back();  // one that nobody waits for
          world.Abort(DiskFull());
          EXPECT_EQ(pending[0].Wait(), DiskFull());
          EXPECT_EQ(pending[1].Wait(), DiskFull());
        } else {
          ExpectToldOfRank1(world.Barrier(), "rank 0 of 3");
        }
        return absl::OkStatus();  // the rest is dropped
      },
      Patient()));
}

TEST(AbortTest, OtherGroupsGoOn) {
  ExpectOk(RunThreadRanks(
      2,
      [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> pair,
                                world.Subgroup({0, 1}, "pair"));
        if (world.rank() == 1) {
          pair->Abort(DiskFull());
        } else {
          ExpectToldOfRank1(pair->Barrier(), "barrier #1 of group \"pair\"");
        }
        return world.Barrier();
      },
      Patient()));
}

TEST(AbortTest, SubgroupsNameRanksAsTheJobDoes) {
  ExpectOk(RunThreadRanks(
      4,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() % 2 == 0) return absl::OkStatus();
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> pair,
                                world.Subgroup({1, 3}, "odd"));
        if (world.rank() == 3) {
          pair->Abort(DiskFull());
          return absl::OkStatus();
        }
        EXPECT_THAT(pair->Barrier(),
                    StatusIs(absl::StatusCode::kAborted,
                             "of group \"odd\" on rank 1 of {1, 3} ",
                             "rank 3 gave up"));
        return absl::OkStatus();
      },
      Patient()));
}

TEST(AbortTest, ASubgroupThatIsNotCompleteNamesTheMissing) {
  CommunicatorOptions options = Patient();
  options.timeout = std::chrono::seconds(2);  // to make "world", too
  ExpectOk(RunThreadRanks(
      4,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() != 1) return absl::OkStatus();
        EXPECT_THAT(world.Subgroup({1, 3}, "odd").status(),
                    StatusIs(absl::StatusCode::kDeadlineExceeded,
                             "group \"odd\", rank 1 of {1, 3}",
                             "rank 3 did not come within 2s"));
        return absl::OkStatus();
      },
      options));
}

TEST(AbortTest, AloneThereIsNobodyToTell) {
  ExpectOk(RunThreadRanks(
      1,
      [&](Communicator& world) -> absl::Status {
        world.Abort(DiskFull());
        return world.Barrier();
      },
      Patient()));
}

// What communicators leave in the flight recorder.

// The ranks are threads here, and share the process's recorder.
FlightDump NotedBy(const std::function<absl::Status(Communicator&)>& run,
                   const CommunicatorOptions& options = {}) {
  FlightDump before;
  EXPECT_TRUE(FlightRecorder::OfProcess().Read(&before));
  ExpectOk(RunThreadRanks(3, run, options));
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
}  // namespace tandem::abort_test
