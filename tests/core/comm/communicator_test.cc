#include "core/comm/communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/comm/communicator_fixture.h"

namespace tandem::communicator_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks[] = {1, 2, 3, 7};
constexpr int64_t kSizes[] = {0, 1, 2, 13, 997};
constexpr at::ScalarType kNumbers[] = {at::kFloat, at::kDouble, at::kInt,
                                       at::kLong};

class CommunicatorTest : public CommunicatorFixture {};

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorTest,
                         ::testing::Values("shm", "gloo"), &NameOfBackend);

// Rank r's tensor: element i is i % 5 + 1 + r, exact in every dtype.
at::Tensor Mine(int rank, int64_t size, at::ScalarType dtype) {
  return at::arange(size, at::kLong).remainder(5).add(1 + rank).to(dtype);
}

using Collective = std::function<absl::Status(Communicator&, int64_t size,
                                              at::ScalarType dtype)>;

// On 1, 2, 3 and 7 ranks, for every size and dtype.
void Everywhere(const Collective& run,
                const std::vector<at::ScalarType>& dtypes) {
  for (const int n : kRanks) {
    const absl::Status status =
        RunRanks(n, [&](Communicator& world) -> absl::Status {
          for (const at::ScalarType dtype : dtypes) {
            for (const int64_t size : kSizes) {
              TANDEM_RETURN_IF_ERROR(run(world, size, dtype));
            }
          }
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
  }
}

const std::vector<at::ScalarType> kAll = {at::kFloat, at::kDouble, at::kLong,
                                          at::kBool,  at::kShort,  at::kHalf};

TEST_P(CommunicatorTest, AllReduceSumIsTheClosedForm) {
  Everywhere(
      [](Communicator& world, int64_t size, at::ScalarType dtype) {
        at::Tensor tensor = Mine(world.rank(), size, dtype);
        TANDEM_RETURN_IF_ERROR(world.AllReduceSum(tensor));
        const int n = world.size();
        const at::Tensor sum =
            Mine(0, size, at::kLong).mul(n).add(n * (n - 1) / 2).to(dtype);
        return Expect(at::equal(tensor, sum), "the sum is wrong");
      },
      {std::begin(kNumbers), std::end(kNumbers)});
}

TEST_P(CommunicatorTest, ReduceSumGivesAnyRootTheClosedForm) {
  Everywhere(
      [](Communicator& world, int64_t size, at::ScalarType dtype) {
        const int n = world.size();
        for (int root = 0; root < n; ++root) {
          const double factor = dtype == at::kDouble ? 0.5 : 1;
          at::Tensor tensor = Mine(world.rank(), size, dtype);
          TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                                  world.StartReduceSum(tensor, root, factor));
          TANDEM_RETURN_IF_ERROR(pending.Wait());
          const at::Tensor sum =
              Mine(0, size, at::kLong).mul(n).add(n * (n - 1) / 2).to(dtype);
          const bool is_root = world.rank() == root;
          TANDEM_RETURN_IF_ERROR(
              Expect(!is_root || at::equal(tensor, sum.mul(factor).to(dtype)),
                     "the sum is wrong"));
        }
        return absl::OkStatus();
      },
      {std::begin(kNumbers), std::end(kNumbers)});
}

TEST_P(CommunicatorTest, BroadcastGivesTheRootsTensorFromAnyRoot) {
  Everywhere(
      [](Communicator& world, int64_t size, at::ScalarType dtype) {
        for (int root = 0; root < world.size(); ++root) {
          at::Tensor tensor = Mine(world.rank(), size, dtype);
          TANDEM_RETURN_IF_ERROR(world.Broadcast(tensor, root));
          TANDEM_RETURN_IF_ERROR(Expect(
              at::equal(tensor, Mine(root, size, dtype)), "not the root's"));
        }
        return absl::OkStatus();
      },
      kAll);
}

TEST_P(CommunicatorTest, AllGatherGivesEveryRanksTensorByRank) {
  Everywhere(
      [](Communicator& world, int64_t size, at::ScalarType dtype) {
        const at::Tensor mine = Mine(world.rank(), size, dtype);
        TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> all,
                                world.AllGather(mine));
        for (int r = 0; r < world.size(); ++r) {
          TANDEM_RETURN_IF_ERROR(Expect(at::equal(all[r], Mine(r, size, dtype)),
                                        "not that rank's"));
        }
        return Expect(
            all[world.rank()].data_ptr() != mine.data_ptr() || size == 0,
            "not a new tensor");
      },
      kAll);
}

TEST_P(CommunicatorTest, AllGatherStringTakesAnyLength) {
  for (const int n : kRanks) {
    const absl::Status status =
        RunRanks(n, [](Communicator& world) -> absl::Status {
          const auto of = [](int r) {
            return std::string(r == 1 ? 0 : 11 * r + 1, 'a' + r) + '\0';
          };
          TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> all,
                                  world.AllGatherString(of(world.rank())));
          for (int r = 0; r < world.size(); ++r) {
            TANDEM_RETURN_IF_ERROR(Expect(all[r] == of(r), "not that rank's"));
          }
          TANDEM_ASSIGN_OR_RETURN(all, world.AllGatherString(""));
          return Expect(all == std::vector<std::string>(world.size()),
                        "not empty");
        });
    EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
  }
}

TEST_P(CommunicatorTest, ScalarsAndParametersTakePartToo) {
  ExpectOk(RunRanks(2, [](Communicator& world) -> absl::Status {
    at::Tensor scalar = at::full({}, 3.0);
    TANDEM_RETURN_IF_ERROR(world.AllReduceSum(scalar));
    TANDEM_RETURN_IF_ERROR(Expect(scalar.item<double>() == 6, "scalar"));
    at::Tensor parameter =
        at::full({2}, float(world.rank())).set_requires_grad(true);
    TANDEM_RETURN_IF_ERROR(world.Broadcast(parameter, 1));
    return Expect(parameter.detach().equal(at::ones({2})), "parameter");
  }));
}

TEST_P(CommunicatorTest, AllReduceGivesTheSameBitsOnEveryRank) {
  ExpectOk(RunRanks(7, [](Communicator& world) -> absl::Status {
    at::Tensor tensor =
        at::arange(997, at::kFloat).add(world.rank()).mul(0.1).sin();
    TANDEM_RETURN_IF_ERROR(world.AllReduceSum(tensor));
    TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> all,
                            world.AllGather(tensor));
    for (const at::Tensor& one : all) {
      TANDEM_RETURN_IF_ERROR(Expect(at::equal(one, tensor), "other bits"));
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommunicatorTest, ABarrierLetsNobodyPassBeforeTheLastHasCome) {
  absl::Mutex mutex;
  int came = 0;
  ExpectOk(RunRanks(3, [&](Communicator& world) -> absl::Status {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * world.rank()));
    {
      absl::MutexLock lock(&mutex);
      ++came;
    }
    TANDEM_RETURN_IF_ERROR(world.Barrier());
    absl::MutexLock lock(&mutex);
    return Expect(came == 3, "somebody passed early");
  }));
}

TEST_P(CommunicatorTest, TensorsThatItDoesNotTakeAreRefusedOnTheSpot) {
  ExpectOk(RunRanks(2, [](Communicator& world) -> absl::Status {
    const auto refused = [](const absl::Status& status) {
      return Expect(absl::IsInvalidArgument(status), status.ToString());
    };
    const at::Tensor turned = at::ones({2, 3}).t();
    TANDEM_RETURN_IF_ERROR(refused(world.AllReduceSum(turned)));
    TANDEM_RETURN_IF_ERROR(refused(world.Broadcast(at::Tensor(), 0)));
    TANDEM_RETURN_IF_ERROR(refused(world.AllGather(turned).status()));
    TANDEM_RETURN_IF_ERROR(
        refused(world.AllReduceSum(at::ones({2}, at::kBool))));
    TANDEM_RETURN_IF_ERROR(refused(world.Broadcast(at::ones({2}), 2)));
    TANDEM_RETURN_IF_ERROR(
        refused(world.StartReduceSum(at::ones({2}), 2).status()));
    TANDEM_RETURN_IF_ERROR(refused(world.StartReduceSum(turned, 0).status()));
    TANDEM_RETURN_IF_ERROR(refused(world.Broadcast(at::ones({2}), -1)));
    TANDEM_RETURN_IF_ERROR(refused(world.Subgroup({0, 0}, "x").status()));
    TANDEM_RETURN_IF_ERROR(refused(world.Subgroup({0, 1, 2}, "x").status()));
    TANDEM_RETURN_IF_ERROR(
        refused(world.Subgroup({1 - world.rank()}, "x").status()));
    TANDEM_RETURN_IF_ERROR(refused(world.Subgroup({}, "x").status()));
    return world.Barrier();  // and nothing is broken
  }));
}

TEST_P(CommunicatorTest, ARankThatStaysAwayFromACollectiveIsNamed) {
  std::string messages[3];
  std::atomic<int> gave_up{0};
  const absl::Status status = RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        if (world.rank() == 2) {
          return Expect(AwaitOtherRanks([&] { return gave_up == 2; }),
                        "ranks 0 and 1 give up");
        }
        at::Tensor tensor = at::ones({5});
        const absl::Status failed = world.AllReduceSum(tensor);
        messages[world.rank()] = std::string(failed.message());
        EXPECT_EQ(world.AllReduceSum(tensor), failed) << "it is broken now";
        ++gave_up;
        return failed;
      },
      WithTimeout(2000));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status))
      << status;
  EXPECT_THAT(
      messages[0],
      AllOf(HasSubstr("all-reduce #2 of group \"world\" on rank 0 of 3"),
            HasSubstr("timeout 2s"), HasSubstr("not heard of: rank 2"),
            HasSubstr("rank 1 failed in all-reduce #2")));
}

TEST(ThreadRanksTest, TheFirstFailureIsToldWithItsRank) {
  const absl::Status status =
      RunThreadRanks(3, [](Communicator& world) -> absl::Status {
        if (world.rank() == 1) throw std::runtime_error("on purpose");
        return absl::OkStatus();
      });
  EXPECT_EQ(status.message(), "rank 1: on purpose");
}

}  // namespace
}  // namespace tandem::communicator_test
