// All-gather, reduce-scatter and all-to-all on every backend of host tensors;
// tests/core/sim/nccl has those on streams.

#include "core/comm/partitioned_collectives.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/comm/communicator_fixture.h"
#include "tests/core/comm/partitioned_fixture.h"

namespace tandem::partitioned_collectives_test {
namespace {

constexpr int kRanks[] = {1, 2, 3, 4, 7};
// The last goes where group buffers are worked on in place.
constexpr int64_t kSizes[] = {0, 1, 13, 997, 5003};
const std::vector<at::ScalarType> kAll = {at::kFloat, at::kDouble, at::kLong,
                                          at::kBool,  at::kShort,  at::kHalf};
const std::vector<at::ScalarType> kSummed = {
    at::kFloat, at::kDouble, at::kInt, at::kLong, at::kHalf, at::kBFloat16};

class PartitionedCollectives : public PartitionedFixture {};

INSTANTIATE_TEST_SUITE_P(Backends, PartitionedCollectives,
                         ::testing::Values("shm", "gloo", "hosts"),
                         &NameOfBackend);

// Small whole numbers, so that sums are exact in every dtype.
at::Tensor Mine(int number, int64_t size, at::ScalarType dtype) {
  return at::arange(size, at::kLong).remainder(5).add(number).to(dtype);
}

// Where tensors lie.
enum class Lies { kAnywhere, kInGroupBuffer };

absl::StatusOr<at::Tensor> Room(Communicator& group, int64_t size,
                                at::ScalarType dtype, Lies where) {
  if (where == Lies::kInGroupBuffer) return NewGroupBuffer(group, size, dtype);
  return at::zeros({size}, dtype);
}

// What is run on one rank, with tensors that lie there, in place or not.
using Case =
    std::function<absl::Status(Communicator& group, int64_t size,
                               at::ScalarType dtype, Lies where, bool inside)>;

void Everywhere(
    const std::function<absl::Status(
        int n, const std::function<absl::Status(Communicator&)>&)>& on_ranks,
    const std::vector<at::ScalarType>& dtypes, const Case& run) {
  for (const int n : kRanks) {
    const absl::Status status =
        on_ranks(n, [&](Communicator& group) -> absl::Status {
          for (const at::ScalarType dtype : dtypes) {
            for (const int64_t size : kSizes) {
              for (const Lies where : {Lies::kAnywhere, Lies::kInGroupBuffer}) {
                for (const bool inside : {false, true}) {
                  TANDEM_RETURN_IF_ERROR(
                      run(group, size, dtype, where, inside));
                }
              }
            }
          }
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
  }
}

at::Tensor AllOfThem(int ranks, int64_t size, at::ScalarType dtype) {
  std::vector<at::Tensor> each;
  for (int r = 0; r < ranks; ++r) each.push_back(Mine(r, size, dtype));
  return at::cat(each);
}

absl::Status GatherOnce(Communicator& group, int64_t size, at::ScalarType dtype,
                        Lies where, bool inside) {
  TANDEM_ASSIGN_OR_RETURN(at::Tensor all,
                          Room(group, group.size() * size, dtype, where));
  all.fill_(1);
  at::Tensor mine = Mine(group.rank(), size, dtype);
  if (inside) {
    PartOf(all, group.rank(), group.size()).copy_(mine);
    mine = PartOf(all, group.rank(), group.size());
  }
  TANDEM_RETURN_IF_ERROR(Wait(StartAllGather(group, all, mine)));
  TANDEM_RETURN_IF_ERROR(Expect(
      at::equal(all, AllOfThem(group.size(), size, dtype)), "not all parts"));
  return Expect(at::equal(mine, Mine(group.rank(), size, dtype)),
                "a rank's own part has changed");
}

TEST_P(PartitionedCollectives, AllGatherGivesEveryRanksPart) {
  Everywhere([](int n, const auto& fn) { return OnRanks(n, fn); }, kAll,
             GatherOnce);
}

// Rank r's part for rank d is Mine(r + d): d gets the sum over all r.
at::Tensor ToScatter(int rank, int ranks, int64_t size, at::ScalarType dtype) {
  std::vector<at::Tensor> each;
  for (int d = 0; d < ranks; ++d) each.push_back(Mine(rank + d, size, dtype));
  return at::cat(each);
}

at::Tensor Scattered(int rank, int ranks, int64_t size) {
  return Mine(rank, size, at::kLong).mul(ranks).add(ranks * (ranks - 1) / 2);
}

absl::Status ScatterOnce(Communicator& group, int64_t size,
                         at::ScalarType dtype, Lies where, bool inside) {
  const int n = group.size();
  for (const double factor : {1.0, 0.5}) {
    if (factor != 1 && !at::isFloatingType(dtype)) continue;
    TANDEM_ASSIGN_OR_RETURN(at::Tensor all,
                            Room(group, n * size, dtype, where));
    const at::Tensor before = ToScatter(group.rank(), n, size, dtype);
    all.copy_(before);
    at::Tensor mine =
        inside ? PartOf(all, group.rank(), n) : at::zeros({size}, dtype);
    TANDEM_RETURN_IF_ERROR(
        Wait(StartReduceScatterSum(group, all, mine, factor)));
    const at::Tensor sum = Scattered(group.rank(), n, size).mul(factor);
    TANDEM_RETURN_IF_ERROR(
        Expect(at::equal(mine, sum.to(dtype)), "not the sum"));
    TANDEM_RETURN_IF_ERROR(
        Expect(inside || at::equal(all, before), "the whole has changed"));
  }
  return absl::OkStatus();
}

TEST_P(PartitionedCollectives, ReduceScatterGivesEachRankItsSum) {
  Everywhere([](int n, const auto& fn) { return OnRanks(n, fn); }, kSummed,
             ScatterOnce);
}

// Longer than a slot, and than what is finished by whoever waits.
TEST_P(PartitionedCollectives, LargeTensorsGoThroughAsWell) {
  ExpectOk(OnRanks(3, [](Communicator& group) -> absl::Status {
    for (const Lies where : {Lies::kAnywhere, Lies::kInGroupBuffer}) {
      for (const bool inside : {false, true}) {
        TANDEM_RETURN_IF_ERROR(
            GatherOnce(group, 500009, at::kFloat, where, inside));
        TANDEM_RETURN_IF_ERROR(
            ScatterOnce(group, 500009, at::kFloat, where, inside));
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(PartitionedCollectives, ReduceScatterHasTheBitsOfTheAllReduce) {
  for (const int n : {2, 3, 7}) {
    const absl::Status status =
        OnRanks(n, [n](Communicator& group) -> absl::Status {
          for (const int64_t size : {997, 16001}) {
            for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
              for (const double factor : {1.0, 1.0 / 3}) {
                const at::Tensor values = at::arange(n * size, at::kFloat)
                                              .add(group.rank())
                                              .mul(0.37)
                                              .sin()
                                              .to(dtype);
                at::Tensor sums = values.clone();
                TANDEM_RETURN_IF_ERROR(
                    Wait(group.StartAllReduceSum(sums, factor)));
                for (const Lies where :
                     {Lies::kAnywhere, Lies::kInGroupBuffer}) {
                  TANDEM_ASSIGN_OR_RETURN(at::Tensor all,
                                          Room(group, n * size, dtype, where));
                  all.copy_(values);
                  const at::Tensor apart = at::empty({size}, dtype);
                  TANDEM_RETURN_IF_ERROR(
                      Wait(StartReduceScatterSum(group, all, apart, factor)));
                  const at::Tensor inside = PartOf(all, group.rank(), n);
                  TANDEM_RETURN_IF_ERROR(
                      Wait(StartReduceScatterSum(group, all, inside, factor)));
                  const at::Tensor expected = PartOf(sums, group.rank(), n);
                  TANDEM_RETURN_IF_ERROR(Expect(
                      at::equal(apart, expected) && at::equal(inside, expected),
                      "other bits"));
                }
              }
            }
          }
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
  }
}

// A bucket, for one, is a slice of all gradients.
TEST_P(PartitionedCollectives, ASliceOfAGroupBufferIsWorkedOnAlone) {
  ExpectOk(OnRanks(3, [](Communicator& group) -> absl::Status {
    constexpr int64_t kPart = 5003;
    TANDEM_ASSIGN_OR_RETURN(at::Tensor buffer,
                            NewGroupBuffer(group, 5 * kPart, at::kFloat));
    buffer.fill_(-1);
    const at::Tensor all = buffer.narrow(0, kPart, 3 * kPart);
    const at::Tensor mine = PartOf(all, group.rank(), 3);
    mine.copy_(Mine(group.rank(), kPart, at::kFloat));
    TANDEM_RETURN_IF_ERROR(Wait(StartAllGather(group, all, mine)));
    TANDEM_RETURN_IF_ERROR(
        Expect(at::equal(all, AllOfThem(3, kPart, at::kFloat)), "gathered"));
    all.copy_(ToScatter(group.rank(), 3, kPart, at::kFloat));
    TANDEM_RETURN_IF_ERROR(Wait(StartReduceScatterSum(group, all, mine)));
    TANDEM_RETURN_IF_ERROR(Expect(
        at::equal(mine, Scattered(group.rank(), 3, kPart).to(at::kFloat)),
        "summed"));
    return Expect(
        buffer.narrow(0, 0, kPart).eq(-1).all().item<bool>() &&
            buffer.narrow(0, 4 * kPart, kPart).eq(-1).all().item<bool>(),
        "something beside the slice has changed");
  }));
}

// One rank's lies in a group buffer, the others' elsewhere.
TEST_P(PartitionedCollectives, RanksNeedNotAgreeWhereTensorsLie) {
  ExpectOk(OnRanks(3, [](Communicator& group) -> absl::Status {
    for (const bool inside : {false, true}) {
      TANDEM_ASSIGN_OR_RETURN(at::Tensor unused,  // all ranks ask for one
                              NewGroupBuffer(group, 3 * 5003, at::kFloat));
      const Lies where =
          group.rank() == 1 ? Lies::kInGroupBuffer : Lies::kAnywhere;
      TANDEM_RETURN_IF_ERROR(
          GatherOnce(group, 5003, at::kFloat, where, inside));
      TANDEM_RETURN_IF_ERROR(
          ScatterOnce(group, 5003, at::kFloat, where, inside));
      TANDEM_RETURN_IF_ERROR(group.Barrier());
    }
    return absl::OkStatus();
  }));
}

TEST_P(PartitionedCollectives, AllToAllTurnsRanksAndParts) {
  Everywhere(
      [](int n, const auto& fn) { return OnRanks(n, fn); }, kAll,
      [](Communicator& group, int64_t size, at::ScalarType dtype, Lies where,
         bool /*inside*/) -> absl::Status {
        const int n = group.size();
        const int me = group.rank();
        TANDEM_ASSIGN_OR_RETURN(at::Tensor sent,
                                Room(group, n * size, dtype, where));
        std::vector<at::Tensor> to, from;
        for (int r = 0; r < n; ++r) {
          to.push_back(Mine(me + 2 * r, size, dtype));
          from.push_back(Mine(r + 2 * me, size, dtype));
        }
        sent.copy_(at::cat(to));
        const at::Tensor received = at::empty_like(sent);
        TANDEM_RETURN_IF_ERROR(Wait(StartAllToAll(group, received, sent)));
        return Expect(at::equal(received, at::cat(from)),
                      "not what the others sent");
      });
}

// Rows of three from rank r to rank d, by `count`; each says who sent it where.
absl::Status ExchangeRows(Communicator& group,
                          const std::function<int64_t(int r, int d)>& count) {
  const int n = group.size();
  const int me = group.rank();
  const auto rows = [&](int r, int d) {
    return at::full({count(r, d), 3}, 10 * r + d, at::kInt);
  };
  ExchangedRows numbers;
  std::vector<at::Tensor> to, from;
  for (int r = 0; r < n; ++r) {
    numbers.sent.push_back(count(me, r));
    numbers.received.push_back(count(r, me));
    to.push_back(rows(me, r));
    from.push_back(rows(r, me));
  }
  const at::Tensor sent = at::cat(to);
  const at::Tensor expected = at::cat(from);
  const at::Tensor received = at::empty_like(expected);
  TANDEM_RETURN_IF_ERROR(
      Wait(StartAllToAllRows(group, received, sent, numbers)));
  return Expect(at::equal(received, expected), "not the rows of the others");
}

TEST_P(PartitionedCollectives, RowsOfAnyNumbersChangeRanks) {
  const std::function<int64_t(int, int)> counts[] = {
      [](int r, int d) { return (r + 2 * d) % 5; },
      [](int r, int d) { return 7001 * (r == 0) + 13 * d; },
      [](int /*r*/, int d) { return d == 0 ? 11 : 0; },  // all to one
      [](int r, int d) { return r == d ? 5 : 0; },       // all stay
      [](int /*r*/, int /*d*/) { return 0; }};
  for (const int n : kRanks) {
    const absl::Status status =
        OnRanks(n, [&](Communicator& group) -> absl::Status {
          for (const auto& count : counts) {
            TANDEM_RETURN_IF_ERROR(ExchangeRows(group, count));
          }
          return group.Barrier();
        });
    EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
  }
}

// They run in the order in which they were started, whoever waits for which.
TEST_P(PartitionedCollectives, SeveralRunAtOnce) {
  ExpectOk(OnRanks(3, [](Communicator& group) -> absl::Status {
    const int n = group.size();
    const at::Tensor gathered = at::zeros({n * 997});
    const at::Tensor summed = at::zeros({997});
    const at::Tensor turned = at::zeros({n * 997});
    const at::Tensor mine = Mine(group.rank(), 997, at::kFloat);
    const at::Tensor parts = ToScatter(group.rank(), n, 997, at::kFloat);
    TANDEM_ASSIGN_OR_RETURN(PendingCollective gather,
                            StartAllGather(group, gathered, mine));
    TANDEM_ASSIGN_OR_RETURN(PendingCollective sum,
                            StartReduceScatterSum(group, parts, summed));
    TANDEM_ASSIGN_OR_RETURN(PendingCollective turn,
                            StartAllToAll(group, turned, parts));
    TANDEM_RETURN_IF_ERROR(turn.Wait());
    TANDEM_RETURN_IF_ERROR(sum.Wait());
    TANDEM_RETURN_IF_ERROR(gather.Wait());
    TANDEM_RETURN_IF_ERROR(
        Expect(at::equal(gathered, AllOfThem(n, 997, at::kFloat)), "gather"));
    TANDEM_RETURN_IF_ERROR(Expect(
        at::equal(summed, Scattered(group.rank(), n, 997).to(at::kFloat)),
        "sum"));
    // What a rank sends is what it receives here.
    return Expect(at::equal(turned, parts), "turn");
  }));
}

TEST_P(PartitionedCollectives, ShapesAreTheCallers) {
  ExpectOk(OnRanks(2, [](Communicator& group) -> absl::Status {
    const at::Tensor mine = at::full({3, 5}, float(group.rank()));
    const at::Tensor all = at::zeros({6, 5}).set_requires_grad(true);
    TANDEM_RETURN_IF_ERROR(Wait(StartAllGather(group, all, mine)));
    TANDEM_RETURN_IF_ERROR(Expect(all.detach()[2].sum().item<float>() == 0 &&
                                      all.detach()[3].sum().item<float>() == 5,
                                  "gathered"));
    const at::Tensor scalar = at::zeros({});
    TANDEM_RETURN_IF_ERROR(
        Wait(StartReduceScatterSum(group, at::ones({1, 2}), scalar)));
    return Expect(scalar.item<float>() == 2, "summed");
  }));
}

TEST_P(PartitionedCollectives, AGroupOfOneCopies) {
  ExpectOk(OnRanks(1, [](Communicator& group) -> absl::Status {
    const at::Tensor mine = at::full({5}, 3.0);
    const at::Tensor all = at::zeros({5});
    TANDEM_RETURN_IF_ERROR(Wait(StartAllGather(group, all, mine)));
    TANDEM_RETURN_IF_ERROR(Expect(at::equal(all, mine), "gathered"));
    TANDEM_RETURN_IF_ERROR(Wait(StartReduceScatterSum(group, mine, all, 0.5)));
    TANDEM_RETURN_IF_ERROR(Expect(all[0].item<float>() == 1.5, "summed"));
    TANDEM_RETURN_IF_ERROR(Expect(mine[0].item<float>() == 3, "kept"));
    const at::Tensor turned = at::zeros({5});
    TANDEM_RETURN_IF_ERROR(
        Wait(StartAllToAllRows(group, turned, mine, {{5}, {5}})));
    return Expect(at::equal(turned, mine), "turned");
  }));
}

TEST_P(PartitionedCollectives, ChecksLetPassWhatIsAlike) {
  ExpectOk(OnCheckedRanks(3, [](Communicator& group) -> absl::Status {
    for (const int64_t size : {0, 13}) {
      TANDEM_RETURN_IF_ERROR(
          GatherOnce(group, size, at::kLong, Lies::kAnywhere, true));
      TANDEM_RETURN_IF_ERROR(
          ScatterOnce(group, size, at::kFloat, Lies::kAnywhere, false));
    }
    TANDEM_RETURN_IF_ERROR(
        ExchangeRows(group, [](int r, int d) { return (r + 2 * d) % 5; }));
    return group.Barrier();
  }));
}

}  // namespace
}  // namespace tandem::partitioned_collectives_test
