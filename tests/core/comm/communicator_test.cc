#include "core/comm/communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/launch/launch.h"
#include "core/store/store.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/testing/listening_sockets.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kRanks[] = {1, 2, 3, 7};
constexpr int64_t kSizes[] = {0, 1, 2, 13, 997};
constexpr at::ScalarType kNumbers[] = {at::kFloat, at::kDouble, at::kInt,
                                       at::kLong};

// On every backend, but for what is Gloo's own.
class CommunicatorTest : public ::testing::TestWithParam<std::string> {};
class GlooTest : public CommunicatorTest {};

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorTest,
                         ::testing::Values("shm", "gloo"), &NameOf);
INSTANTIATE_TEST_SUITE_P(Backends, GlooTest, ::testing::Values("gloo"),
                         &NameOf);

CommunicatorOptions WithTimeout(int milliseconds) {
  CommunicatorOptions options;
  options.backend = CommunicatorTest::GetParam();
  options.timeout = std::chrono::milliseconds(milliseconds);
  return options;
}

// Rank r's tensor: element i is i % 5 + 1 + r, exact in every dtype.
at::Tensor Mine(int rank, int64_t size, at::ScalarType dtype) {
  return at::arange(size, at::kLong).remainder(5).add(1 + rank).to(dtype);
}

absl::Status RunRanks(int n,
                      const std::function<absl::Status(Communicator&)>& fn) {
  return RunThreadRanks(n, fn, WithTimeout(30000));
}

absl::Status Expect(bool holds, const std::string& what) {
  return holds ? absl::OkStatus() : absl::InternalError(what);
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
  const absl::Status status =
      RunRanks(2, [](Communicator& world) -> absl::Status {
        at::Tensor scalar = at::full({}, 3.0);
        TANDEM_RETURN_IF_ERROR(world.AllReduceSum(scalar));
        TANDEM_RETURN_IF_ERROR(Expect(scalar.item<double>() == 6, "scalar"));
        at::Tensor parameter =
            at::full({2}, float(world.rank())).set_requires_grad(true);
        TANDEM_RETURN_IF_ERROR(world.Broadcast(parameter, 1));
        return Expect(parameter.detach().equal(at::ones({2})), "parameter");
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorTest, AllReduceGivesTheSameBitsOnEveryRank) {
  const absl::Status status =
      RunRanks(7, [](Communicator& world) -> absl::Status {
        at::Tensor tensor =
            at::arange(997, at::kFloat).add(world.rank()).mul(0.1).sin();
        TANDEM_RETURN_IF_ERROR(world.AllReduceSum(tensor));
        TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> all,
                                world.AllGather(tensor));
        for (const at::Tensor& one : all) {
          TANDEM_RETURN_IF_ERROR(Expect(at::equal(one, tensor), "other bits"));
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorTest, ABarrierLetsNobodyPassBeforeTheLastHasCome) {
  absl::Mutex mutex;
  int came = 0;
  const absl::Status status =
      RunRanks(3, [&](Communicator& world) -> absl::Status {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(50 * world.rank()));
        {
          absl::MutexLock lock(&mutex);
          ++came;
        }
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        absl::MutexLock lock(&mutex);
        return Expect(came == 3, "somebody passed early");
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorTest, SubgroupsWorkBesideEachOtherAndInTheGivenOrder) {
  const absl::Status status =
      RunRanks(7, [](Communicator& world) -> absl::Status {
        const bool odd = world.rank() % 2 == 1;
        const std::vector<int> ranks =
            odd ? std::vector<int>{5, 1, 3} : std::vector<int>{0, 2, 4, 6};
        // The same name twice: groups of one axis share a name, and a group
        // may be made again.
        for (int time = 0; time < 2; ++time) {
          TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> half,
                                  world.Subgroup(ranks, "half"));
          TANDEM_RETURN_IF_ERROR(
              Expect(ranks[half->rank()] == world.rank(), "rank"));
          at::Tensor sum = at::full({3}, world.rank(), at::kLong);
          TANDEM_RETURN_IF_ERROR(half->AllReduceSum(sum));
          TANDEM_RETURN_IF_ERROR(
              Expect(sum[2].item<int64_t>() == (odd ? 9 : 12), "sum"));
        }
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> alone,
                                world.Subgroup({world.rank()}, "alone"));
        TANDEM_RETURN_IF_ERROR(alone->Barrier());
        return world.Barrier();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorTest, GroupsOfAGroupCountItsRanks) {
  const absl::Status status =
      RunRanks(3, [](Communicator& world) -> absl::Status {
        if (world.rank() == 0) return absl::OkStatus();
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> pair,
                                world.Subgroup({2, 1}, "pair"));
        TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> turned,
                                pair->Subgroup({1, 0}, "turned"));
        // Messages call a rank by its number in the job.
        EXPECT_EQ(pair->NameOf(0), 2);
        EXPECT_EQ(turned->NameOf(turned->rank()), world.rank());
        return Expect(turned->rank() == world.rank() - 1, "rank");
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorTest, OneRankOpensNoConnection) {
  const absl::Status status =
      RunRanks(1, [](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        EXPECT_THAT(ListeningSockets(), IsEmpty());
        return Expect(world.process_group() == nullptr, "a process group");
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(GlooTest, ListensOnLoopbackAlone) {
  const absl::Status status =
      RunRanks(2, [](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        const std::vector<std::string> sockets = ListeningSockets();
        EXPECT_THAT(sockets, Not(IsEmpty()));
        EXPECT_THAT(sockets, Each(StartsWith("127.0.0.1:")));
        return world.Barrier();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(GlooTest, TheInterfaceMayBeNamed) {
  for (const char* place : {"lo", "127.0.0.1"}) {
    CommunicatorOptions options = WithTimeout(30000);
    options.interface = place;
    const absl::Status status = RunThreadRanks(
        2, [](Communicator& world) { return world.Barrier(); }, options);
    EXPECT_TRUE(status.ok()) << place << ": " << status;
  }
  CommunicatorOptions options = WithTimeout(5000);
  options.interface = "nosuchif0";
  const absl::Status status = RunThreadRanks(
      2, [](Communicator& world) { return world.Barrier(); }, options);
  EXPECT_THAT(status.message(), HasSubstr("nosuchif0"));
}

TEST_P(GlooTest, RanksOnSeveralHostsBindWhereTheyReachTheMaster) {
  CommunicatorOptions options = WithTimeout(30000);
  options.all_local = false;
  options.master_host = "127.0.0.1";
  absl::Status status = RunThreadRanks(
      2, [](Communicator& world) { return world.Barrier(); }, options);
  EXPECT_TRUE(status.ok()) << status;
  options.master_host = "";
  status = RunThreadRanks(
      2, [](Communicator& world) { return world.Barrier(); }, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

// Two ranks that meet as `where` says; each is a node of its own when `nnodes`
// is 2.
void ExpectWorldOfTwo(const Rendezvous& where, int nnodes) {
  const auto rank_main = [&](int rank) {
    Launch launch;
    launch.rank = rank;
    launch.world_size = 2;
    launch.nnodes = nnodes;
    launch.rendezvous = where;
    auto world = Communicator::ForLaunch(launch, WithTimeout(30000));
    ASSERT_TRUE(world.ok()) << world.status();
    EXPECT_EQ((*world)->name(), "world");
    at::Tensor tensor = at::ones({3});
    const absl::Status status = (*world)->AllReduceSum(tensor);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(tensor.sum().item<float>(), 6);
    EXPECT_THAT(ListeningSockets(), Each(StartsWith("127.0.0.1:")));
    // Rank 0 may serve the store and the other may still look at its sockets.
    EXPECT_TRUE((*world)->Barrier().ok());
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
}

TEST_P(CommunicatorTest, AWorldIsMadeFromALaunch) {
  Rendezvous file;
  file.kind = Rendezvous::Kind::kFile;
  file.path = ::testing::TempDir() + "/world";
  ExpectWorldOfTwo(file, 1);

  auto served = ServeTcpStore("127.0.0.1", 0, std::chrono::seconds(30));
  ASSERT_TRUE(served.ok()) << served.status();
  Rendezvous tcp;
  tcp.kind = Rendezvous::Kind::kTcp;
  tcp.host = "127.0.0.1";
  tcp.port = served->port;
  tcp.served_by_launcher = true;
  for (const int nnodes : {1, 2}) {
    tcp.key_prefix = absl::StrCat("attempt_", nnodes);
    ExpectWorldOfTwo(tcp, nnodes);
  }
}

TEST_P(CommunicatorTest, AWorldOfOneNeedsNoRendezvous) {
  auto world = Communicator::ForLaunch(Launch{}, WithTimeout(30000));
  ASSERT_TRUE(world.ok()) << world.status();
  EXPECT_EQ((*world)->size(), 1);
}

TEST_P(CommunicatorTest, AnUnknownBackendListsTheKnown) {
  CommunicatorOptions options = WithTimeout(30000);
  options.backend = "pigeon";
  const absl::Status status = RunThreadRanks(
      2, [](Communicator& world) { return world.Barrier(); }, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"pigeon\""),
                                      HasSubstr("known are: shm, gloo")));
}

TEST_P(CommunicatorTest, TensorsThatItDoesNotTakeAreRefusedOnTheSpot) {
  const absl::Status status =
      RunRanks(2, [](Communicator& world) -> absl::Status {
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
        TANDEM_RETURN_IF_ERROR(refused(world.Broadcast(at::ones({2}), -1)));
        TANDEM_RETURN_IF_ERROR(refused(world.Subgroup({0, 0}, "x").status()));
        TANDEM_RETURN_IF_ERROR(
            refused(world.Subgroup({0, 1, 2}, "x").status()));
        TANDEM_RETURN_IF_ERROR(
            refused(world.Subgroup({1 - world.rank()}, "x").status()));
        TANDEM_RETURN_IF_ERROR(refused(world.Subgroup({}, "x").status()));
        return world.Barrier();  // and nothing is broken
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorTest, RanksThatNeverComeAreNamed) {
  auto store = NewHashStore(std::chrono::seconds(30));
  const absl::Status status =
      Communicator::Create(store, 1, 4, "world", WithTimeout(300)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("group \"world\", rank 1 of 4"),
                    HasSubstr("ranks 0, 2, 3 did not come within 300ms")));
}

TEST_P(CommunicatorTest, AGroupOfAUsedNameIsRefused) {
  auto store = NewHashStore(std::chrono::seconds(30));
  EXPECT_FALSE(Communicator::Create(store, 0, 2, "g", WithTimeout(50)).ok());
  EXPECT_EQ(
      Communicator::Create(store, 0, 2, "g", WithTimeout(50)).status().code(),
      absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(
      Communicator::Create(store, 2, 2, "h", WithTimeout(50)).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST_P(CommunicatorTest, ARankThatStaysAwayFromACollectiveIsNamed) {
  std::string messages[3];
  const absl::Status status = RunThreadRanks(
      3,
      [&](Communicator& world) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        if (world.rank() == 2) {
          std::this_thread::sleep_for(std::chrono::seconds(4));
          return absl::OkStatus();
        }
        at::Tensor tensor = at::ones({5});
        const absl::Status failed = world.AllReduceSum(tensor);
        messages[world.rank()] = std::string(failed.message());
        EXPECT_EQ(world.AllReduceSum(tensor), failed) << "it is broken now";
        return failed;
      },
      WithTimeout(1000));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status))
      << status;
  EXPECT_THAT(
      messages[0],
      AllOf(HasSubstr("all-reduce #2 of group \"world\" on rank 0 of 3"),
            HasSubstr("timeout 1s"), HasSubstr("not heard of: rank 2"),
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
}  // namespace tandem
