// How all-gather, reduce-scatter and all-to-all fail: what they refuse, whom
// they name, and what the flight record has of them.

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/comm/partitioned_collectives.h"
#include "core/flight/recorder.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/comm/communicator_fixture.h"
#include "tests/core/comm/partitioned_fixture.h"
#include "tests/core/testing/recorded_flights.h"

namespace tandem::partitioned_errors_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PartitionedErrors : public PartitionedFixture {};

INSTANTIATE_TEST_SUITE_P(Backends, PartitionedErrors,
                         ::testing::Values("shm", "gloo", "hosts"),
                         &NameOfBackend);

TEST_P(PartitionedErrors, WhatDoesNotFitIsRefusedOnTheSpot) {
  ExpectOk(OnRanks(2, [](Communicator& group) -> absl::Status {
    const auto refused = [](const absl::StatusOr<PendingCollective>& started,
                            const std::string& why) {
      return Expect(
          absl::IsInvalidArgument(started.status()) &&
              absl::StrContains(started.status().message(), why),
          absl::StrCat(why, " expected: ", started.status().ToString()));
    };
    const at::Tensor six = at::ones({6});
    const at::Tensor three = at::ones({3});
    TANDEM_RETURN_IF_ERROR(refused(
        StartAllGather(group, at::ones({5}), three),
        "all-gather of group \"world\": the whole is Float [5], and this "
        "rank's part Float [3]; the whole must have 2 times as many elements"));
    TANDEM_RETURN_IF_ERROR(
        refused(StartAllGather(group, six, at::ones({3}, at::kLong)),
                "one tensor is Float on cpu, the other Long on cpu"));
    TANDEM_RETURN_IF_ERROR(
        refused(StartAllGather(group, six, at::Tensor()), "undefined"));
    TANDEM_RETURN_IF_ERROR(refused(
        StartAllGather(group, at::ones({2, 3}).t(), three), "contiguous"));
    TANDEM_RETURN_IF_ERROR(
        refused(StartAllGather(group, six, six.narrow(0, 1, 3)),
                absl::StrCat("where that rank's is, which begins at element ",
                             3 * group.rank())));
    const at::Tensor others = PartOf(six, 1 - group.rank(), 2);
    TANDEM_RETURN_IF_ERROR(
        refused(StartReduceScatterSum(group, six, others), "not where"));
    TANDEM_RETURN_IF_ERROR(
        refused(StartReduceScatterSum(group, at::ones({2}, at::kBool),
                                      at::ones({1}, at::kBool)),
                "reduce-scatter of group \"world\": cannot sum Bool on cpu"));
    TANDEM_RETURN_IF_ERROR(
        refused(StartReduceScatterSum(group, at::ones({2}, at::kInt),
                                      at::ones({1}, at::kInt), 0.5),
                "a factor is for floating-point numbers, not Int on cpu"));
    TANDEM_RETURN_IF_ERROR(refused(StartAllToAll(group, at::ones({3}), three),
                                   "a multiple of the group's 2 ranks"));
    TANDEM_RETURN_IF_ERROR(refused(StartAllToAll(group, six, six), "overlaps"));
    const auto rows = [&](std::vector<int64_t> received,
                          std::vector<int64_t> sent) {
      return StartAllToAllRows(group, at::ones({3, 2}), at::ones({3, 2}),
                               {std::move(received), std::move(sent)});
    };
    TANDEM_RETURN_IF_ERROR(
        refused(rows({1, 1}, {1, 2}), "{1, 1} rows are received"));
    TANDEM_RETURN_IF_ERROR(
        refused(rows({1, 2}, {4, -1}), "{4, -1} rows are sent"));
    TANDEM_RETURN_IF_ERROR(
        refused(rows({3}, {1, 2}), "there must be 2 numbers"));
    TANDEM_RETURN_IF_ERROR(refused(rows({1, 2}, {2, 1}), "sends itself"));
    TANDEM_RETURN_IF_ERROR(
        refused(StartAllToAllRows(group, at::ones({4, 3}), at::ones({4, 2}),
                                  {{2, 2}, {2, 2}}),
                "must have one shape"));
    return group.Barrier();  // and nothing is broken
  }));
}

// By whoever completes them: what runs behind them need not wait for them.
TEST_P(PartitionedErrors, EndsAreKnownBeforeAnybodyWaits) {
  ExpectOk(OnRanks(2, [](Communicator& group) -> absl::Status {
    const at::Tensor mine = at::ones({997});
    const at::Tensor all = at::ones({2 * 997});
    const at::Tensor gathered = at::zeros({2 * 997});
    const at::Tensor summed = at::zeros({997});
    const at::Tensor received = at::zeros({2 * 997});
    std::vector<PendingCollective> pending(3);
    TANDEM_ASSIGN_OR_RETURN(pending[0], StartAllGather(group, gathered, mine));
    TANDEM_ASSIGN_OR_RETURN(pending[1],
                            StartReduceScatterSum(group, all, summed));
    TANDEM_ASSIGN_OR_RETURN(pending[2], StartAllToAll(group, received, all));
    const at::Tensor last = at::ones({5});
    TANDEM_ASSIGN_OR_RETURN(PendingCollective sum,
                            group.StartAllReduceSum(last));
    TANDEM_RETURN_IF_ERROR(sum.Wait());
    for (PendingCollective& each : pending) {
      TANDEM_RETURN_IF_ERROR(Expect(
          AwaitOtherRanks([&] {
            return each.ended() != PendingCollective::Clock::time_point();
          }),
          "its end is not known"));
      TANDEM_RETURN_IF_ERROR(each.Wait());
    }
    return absl::OkStatus();
  }));
}

// What two ranks of three see of one that stays away.
std::vector<absl::Status> WithoutRank2(
    const std::function<absl::Status(
        const std::function<absl::Status(Communicator&)>&)>& on_ranks,
    const std::function<absl::StatusOr<PendingCollective>(Communicator&)>&
        start) {
  std::vector<absl::Status> seen(3);
  std::atomic<int> gave_up{0};
  const absl::Status first = on_ranks([&](Communicator& group) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(group.Barrier());
    if (group.rank() == 2) {
      return Expect(AwaitOtherRanks([&] { return gave_up == 2; }),
                    "ranks 0 and 1 give up");
    }
    const absl::Status failed = Wait(start(group));
    seen[group.rank()] = failed;
    EXPECT_EQ(group.AllReduceSum(at::ones({5})), failed) << "it is broken";
    ++gave_up;
    return failed;
  });
  EXPECT_FALSE(first.ok());
  return seen;
}

TEST_P(PartitionedErrors, ARankThatStaysAwayIsNamed) {
  const auto on_ranks =
      [](const std::function<absl::Status(Communicator&)>& fn) {
        return OnRanks(3, fn, std::chrono::seconds(1));
      };
  const CollectivePurpose purpose = [] { return "layer 4 of step 7"; };
  const auto expect = [&](const std::string& name, const auto& start) {
    const std::vector<absl::Status> seen = WithoutRank2(on_ranks, start);
    EXPECT_THAT(
        std::string(seen[0].message()),
        AllOf(HasSubstr(absl::StrCat(name,
                                     " #2 (layer 4 of step 7) of group "
                                     "\"world\" on rank 0 of 3")),
              HasSubstr("timeout 1s"), HasSubstr("not heard of: rank 2"),
              HasSubstr(absl::StrCat("rank 1 failed in ", name, " #2"))));
  };
  expect("all-gather", [&](Communicator& group) {
    return StartAllGather(group, at::zeros({15}), at::ones({5}), purpose);
  });
  expect("reduce-scatter", [&](Communicator& group) {
    return StartReduceScatterSum(group, at::ones({15}), at::zeros({5}), 1,
                                 purpose);
  });
  expect("all-to-all", [&](Communicator& group) {
    return StartAllToAll(group, at::zeros({15}), at::ones({15}), purpose);
  });
}

TEST_P(PartitionedErrors, AnAbortEndsThemWithItsReason) {
  ExpectOk(OnRanks(
      3,
      [](Communicator& group) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(group.Barrier());
        if (group.rank() == 1) {
          group.Abort(absl::ResourceExhaustedError("disk full"));
          return absl::OkStatus();
        }
        const at::Tensor all = at::zeros({3 * 997});
        const absl::Status told =
            Wait(StartAllGather(group, all, at::ones({997})));
        EXPECT_TRUE(absl::IsAborted(told)) << told;
        EXPECT_THAT(told.message(), HasSubstr("rank 1 gave up: disk full"));
        EXPECT_EQ(Wait(StartReduceScatterSum(group, all, at::ones({997}))),
                  told);
        EXPECT_EQ(Wait(StartAllToAll(group, at::zeros({3}), at::ones({3}))),
                  told);
        return absl::OkStatus();
      },
      std::chrono::minutes(10)));
}

TEST_P(PartitionedErrors, ChecksFindWhereRanksDiffer) {
  const auto expect = [](const std::string& message, const auto& start) {
    ExpectOk(OnCheckedRanks(2, [&](Communicator& group) {
      EXPECT_THAT(Wait(start(group)), InvalidArgument(message));
      return absl::OkStatus();
    }));
  };
  expect(
      "rank 1 started all-gather of Float [6] on cpu where rank 0 started "
      "all-gather of Float [5] on cpu",
      [](Communicator& group) {
        const int64_t n = 5 + group.rank();
        return StartAllGather(group, at::zeros({2 * n}), at::ones({n}));
      });
  expect(
      "rank 1 started reduce-scatter of Float [6] on cpu where rank 0 started "
      "reduce-scatter of Float [5] on cpu",
      [](Communicator& group) {
        const int64_t n = 5 + group.rank();
        return StartReduceScatterSum(group, at::zeros({2 * n}), at::ones({n}));
      });
  expect(
      "rank 1 started all-to-all of Double [4] on cpu where rank 0 started "
      "all-to-all of Float [4] on cpu",
      [](Communicator& group) {
        const auto dtype = group.rank() == 0 ? at::kFloat : at::kDouble;
        return StartAllToAll(group, at::zeros({4}, dtype),
                             at::ones({4}, dtype));
      });
  expect(
      "rank 1 started all-to-all of rows of Float [3] on cpu where rank 0 "
      "started all-to-all of rows of Float [2] on cpu",
      [](Communicator& group) {
        const int64_t width = 2 + group.rank();
        return StartAllToAllRows(group, at::zeros({4, width}),
                                 at::ones({4, width}), {{2, 2}, {2, 2}});
      });
  expect("rank 1 sends 3 rows to rank 0, which expects 2",
         [](Communicator& group) {
           const int64_t sent = group.rank() == 0 ? 4 : 5;
           return StartAllToAllRows(
               group, at::zeros({4, 7}), at::ones({sent, 7}),
               group.rank() == 0 ? ExchangedRows{{2, 2}, {2, 2}}
                                 : ExchangedRows{{2, 2}, {3, 2}});
         });
}

// shm sees it by itself.
TEST(PartitionedErrorsOnShm, RowsThatDoNotMatchAreFoundUnchecked) {
  CommunicatorOptions options;
  options.timeout = std::chrono::minutes(10);
  ExpectOk(RunThreadRanks(
      2,
      [](Communicator& group) -> absl::Status {
        const ExchangedRows rows = group.rank() == 0
                                       ? ExchangedRows{{2, 2}, {2, 2}}
                                       : ExchangedRows{{2, 2}, {3, 2}};
        EXPECT_THAT(Wait(StartAllToAllRows(
                        group, at::zeros({4}),
                        at::ones({group.rank() == 0 ? 4 : 5}), rows)),
                    InvalidArgument("sends 12 bytes to rank 0, which expects "
                                    "8"));
        return absl::OkStatus();
      },
      options));
}

TEST(PartitionedErrorsOnShm, TheFlightRecordHasEachOnce) {
  const auto all = [](Communicator& group) -> absl::Status {
    const FlightPurposeScope purpose({"layer", 4});
    TANDEM_RETURN_IF_ERROR(
        Wait(StartAllGather(group, at::zeros({0}), at::ones({0}))));  // none
    TANDEM_RETURN_IF_ERROR(
        Wait(StartAllGather(group, at::zeros({14}), at::ones({7}))));
    TANDEM_RETURN_IF_ERROR(
        Wait(StartReduceScatterSum(group, at::ones({14}), at::zeros({7}))));
    TANDEM_RETURN_IF_ERROR(
        Wait(StartAllToAll(group, at::zeros({4}), at::ones({4}))));
    return Wait(StartAllToAllRows(group, at::zeros({2, 3}), at::ones({2, 3}),
                                  {{1, 1}, {1, 1}}));
  };
  const FlightDump dump =
      RecordedFlights([&] { ExpectOk(RunThreadRanks(2, all)); });
  std::map<std::string, int> noted;
  for (const FlightEntry& each : dump.entries) {
    EXPECT_EQ(each.state, FlightState::kCompleted);
    ++noted[each.ToString()];
  }
  const std::map<std::string, int> expected = {
      {"all-gather #1 (layer 4) of Float [7]", 2},
      {"reduce-scatter #2 (layer 4) of Float [7]", 2},
      {"all-to-all #3 (layer 4) of Float [4]", 2},
      {"all-to-all #4 (layer 4) of Float [3]", 2}};
  EXPECT_EQ(noted, expected);
}

}  // namespace
}  // namespace tandem::partitioned_errors_test
