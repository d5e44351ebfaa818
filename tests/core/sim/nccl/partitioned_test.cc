// All-gather, reduce-scatter and all-to-all of tensors on simulated devices, by
// streams.

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/comm/partitioned_collectives.h"
#include "core/testing/statuses.h"
#include "tests/core/sim/nccl/nccl_ranks.h"

namespace tandem::partitioned_test {
namespace {

absl::Status Wait(absl::StatusOr<PendingCollective> started) {
  TANDEM_RETURN_IF_ERROR(started.status());
  return started->Wait();
}

at::Tensor Mine(int number, int64_t size, at::ScalarType dtype) {
  return at::arange(size, at::kLong).remainder(5).add(number).to(dtype);
}

// Mine of begin, begin + step, ..., `count` of them.
at::Tensor Several(int count, int begin, int step, int64_t size,
                   at::ScalarType dtype) {
  std::vector<at::Tensor> each;
  for (int i = 0; i < count; ++i) {
    each.push_back(Mine(begin + i * step, size, dtype));
  }
  return at::cat(each);
}

class NcclParts : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, NcclParts, ::testing::Values(1, 2, 3, 4, 7));

constexpr int64_t kSizes[] = {0, 1, 13, 997, 70001};

TEST_P(NcclParts, AllGather) {
  const int n = GetParam();
  ExpectOk(RunNcclRanks(n, [n](const NcclRank& rank) -> absl::Status {
    for (const at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool}) {
      for (const int64_t size : kSizes) {
        const at::Tensor mine = Mine(rank.rank, size, dtype).to(rank.device);
        const at::Tensor expected = Several(n, 0, 1, size, dtype);
        const at::Tensor apart = at::zeros({n * size}, mine.options());
        TANDEM_RETURN_IF_ERROR(Wait(StartAllGather(rank.group, apart, mine)));
        TANDEM_RETURN_IF_ERROR(
            Expect(at::equal(apart.cpu(), expected), "not all parts"));
        const at::Tensor all = at::zeros({n * size}, mine.options());
        const at::Tensor inside = all.narrow(0, rank.rank * size, size);
        inside.copy_(mine);
        TANDEM_RETURN_IF_ERROR(Wait(StartAllGather(rank.group, all, inside)));
        TANDEM_RETURN_IF_ERROR(
            Expect(at::equal(all.cpu(), expected), "not all, in place"));
      }
    }
    return rank.group.Synchronize();
  }));
}

// A third is no number of bf16, so that the backend must not multiply by it;
// all ranks but one have zeros, so that sums round nothing.
TEST_P(NcclParts, ReduceScatterOfWholeFactors) {
  const int n = GetParam();
  ExpectOk(RunNcclRanks(n, [n](const NcclRank& rank) -> absl::Status {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t size : kSizes) {
        for (const double factor : {1.0, 0.5, 1.0 / 3}) {
          const at::Tensor whole = Several(n, 1, 1, size, dtype);
          const at::Tensor expected =
              whole.narrow(0, rank.rank * size, size)
                  .mul(at::full({}, factor, at::kDouble));
          const at::Tensor all = whole.mul(rank.rank == n - 1).to(rank.device);
          const at::Tensor before = all.clone();
          const at::Tensor apart = at::zeros({size}, all.options());
          TANDEM_RETURN_IF_ERROR(
              Wait(StartReduceScatterSum(rank.group, all, apart, factor)));
          TANDEM_RETURN_IF_ERROR(
              Expect(at::equal(apart.cpu(), expected), "not the sum"));
          TANDEM_RETURN_IF_ERROR(
              Expect(at::equal(all.cpu(), before.cpu()), "has changed"));
          const at::Tensor inside = all.narrow(0, rank.rank * size, size);
          TANDEM_RETURN_IF_ERROR(
              Wait(StartReduceScatterSum(rank.group, all, inside, factor)));
          TANDEM_RETURN_IF_ERROR(
              Expect(at::equal(inside.cpu(), expected), "not it, in place"));
        }
      }
    }
    return rank.group.Synchronize();
  }));
}

TEST_P(NcclParts, AllToAll) {
  const int n = GetParam();
  ExpectOk(RunNcclRanks(n, [n](const NcclRank& rank) -> absl::Status {
    for (const at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool}) {
      for (const int64_t size : kSizes) {
        const at::Tensor sent =
            Several(n, rank.rank, 2, size, dtype).to(rank.device);
        const at::Tensor received = at::empty_like(sent);
        TANDEM_RETURN_IF_ERROR(Wait(StartAllToAll(rank.group, received, sent)));
        TANDEM_RETURN_IF_ERROR(
            Expect(at::equal(received.cpu(),
                             Several(n, 2 * rank.rank, 1, size, dtype)),
                   "not what the others sent"));
      }
    }
    return rank.group.Synchronize();
  }));
}

// Rank r gives rank d (r + 2 d) % 5 rows of two.
TEST_P(NcclParts, RowsOfAnyNumbersChangeRanks) {
  const int n = GetParam();
  ExpectOk(RunNcclRanks(n, [n](const NcclRank& rank) -> absl::Status {
    const auto rows = [](int r, int d) {
      return at::full({(r + 2 * d) % 5, 2}, 10 * r + d, at::kFloat);
    };
    ExchangedRows numbers;
    std::vector<at::Tensor> to, from;
    for (int r = 0; r < n; ++r) {
      to.push_back(rows(rank.rank, r));
      from.push_back(rows(r, rank.rank));
      numbers.sent.push_back(to.back().size(0));
      numbers.received.push_back(from.back().size(0));
    }
    const at::Tensor sent = at::cat(to).to(rank.device);
    const at::Tensor expected = at::cat(from);
    const at::Tensor received =
        at::zeros(expected.sizes(), at::device(rank.device).dtype(at::kFloat));
    TANDEM_RETURN_IF_ERROR(
        Wait(StartAllToAllRows(rank.group, received, sent, numbers)));
    TANDEM_RETURN_IF_ERROR(
        Expect(at::equal(received.cpu(), expected), "not the others' rows"));
    return rank.group.Synchronize();
  }));
}

// The host goes on, and what it gives the device next runs behind them.
TEST(NcclPartsHost, WorksRunBehindWhatTheDeviceComputes) {
  ExpectOk(RunNcclRanks(3, [](const NcclRank& rank) -> absl::Status {
    const at::Tensor all = rank.Full(3 * 1000, 1);
    const at::Tensor mine = all.narrow(0, rank.rank * 1000, 1000);
    for (int i = 0; i < 20; ++i) {
      mine.add_(1);
      TANDEM_RETURN_IF_ERROR(Wait(StartAllGather(rank.group, all, mine)));
      all.mul_(3);
      TANDEM_RETURN_IF_ERROR(
          Wait(StartReduceScatterSum(rank.group, all, mine, 1.0 / 8)));
      mine.mul_(8).div_(9);
    }
    return Expect(at::equal(mine.cpu(), at::full({1000}, 21, at::kFloat)),
                  "1 and twenty times 1 more");
  }));
}

// NCCL would hang, or write where it may not.
TEST(NcclPartsHost, RowsThatDoNotMatchAreTold) {
  absl::Status seen;
  ExpectOk(RunNcclRanks(2, [&](const NcclRank& rank) -> absl::Status {
    const bool first = rank.rank == 0;
    const auto rows = [&](int64_t count) {
      return at::zeros({count, 2}, at::device(rank.device).dtype(at::kFloat));
    };
    TANDEM_RETURN_IF_ERROR(
        StartAllToAllRows(rank.group, rows(4), rows(first ? 4 : 5),
                          first ? ExchangedRows{{2, 2}, {2, 2}}
                                : ExchangedRows{{2, 2}, {3, 2}})
            .status());
    const absl::Status end = rank.group.Synchronize();
    if (first) seen = end;
    return Expect(!end.ok(), "it went well");
  }));
  EXPECT_TRUE(
      absl::StrContains(seen.message(), "rank 1 is at a send of 24 bytes"))
      << seen;
  EXPECT_TRUE(absl::StrContains(seen.message(), "all-to-all")) << seen;
}

}  // namespace
}  // namespace tandem::partitioned_test
