// All-reduces and broadcasts over hosts in many chunks. Between hosts is shared
// memory here, which takes every dtype; at the end Gloo.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "core/backend/hierarchical_backend.h"
#include "core/comm/communicator.h"
#include "tests/core/shm/ranks.h"
#include "tests/core/testing/on_threads.h"

namespace tandem::hierarchical_chunks_test {
namespace {

using ::testing::HasSubstr;
using Hosts = std::vector<std::string>;
using BackendPtr = HierarchicalBackend::BackendPtr;

// Two hosts whose ranks are not neighbours; three hosts of two ranks; seven
// ranks, one of which is alone.
const Hosts kLayouts[] = {{"a", "b", "a", "b", "a"},
                          {"a", "a", "b", "b", "c", "c"},
                          {"a", "b", "b", "b", "b", "b", "b"}};
constexpr int64_t kChunkBytes = 4096;
// The fourth is a chunk of floats and one more.
constexpr int64_t kChunkSizes[] = {0, 1, 997, 1025, 5003, 20011};

// What a test puts around the leaders' backend.
using Wrap = std::function<BackendPtr(int host, BackendPtr leaders)>;

void OnHosts(const Hosts& hosts, const std::function<void(c10d::Backend&)>& fn,
             const Wrap& wrap = {}) {
  constexpr std::chrono::seconds kTimeout(30);
  const StorePtr store = NewHashStore(kTimeout);
  const HostLayout layout(hosts);
  const int n = static_cast<int>(hosts.size());
  OnThreads(n, [&](int rank) {
    auto backend = HierarchicalBackend::Create(
        store, rank, layout, kTimeout, {},
        [&](const StorePtr& group_store, int group_rank,
            int group_size) -> absl::StatusOr<BackendPtr> {
          TANDEM_ASSIGN_OR_RETURN(BackendPtr made,
                                  ShmBackend::Create(group_store, group_rank,
                                                     group_size, kTimeout));
          return wrap && group_size < n ? wrap(group_rank, made) : made;
        },
        kChunkBytes);
    ASSERT_TRUE(backend.ok()) << backend.status();
    const absl::Status thrown = CatchTorch([&] { fn(**backend); });
    EXPECT_TRUE(thrown.ok()) << thrown;
  });
}

TEST(HierarchicalChunksTest, SumsOfEveryDtypeAndSize) {
  for (const Hosts& hosts : kLayouts) {
    OnHosts(hosts, [](c10d::Backend& b) {
      for (const at::ScalarType type : kNumbers) {
        for (const int64_t size : kChunkSizes) {
          Tensors plain = {Mine(b.getRank(), size, type)};
          Tensors shared = {Shared(b, plain[0])};
          b.allreduce(plain)->wait();
          b.allreduce(shared)->wait();
          ExpectEqual(plain[0], Sum(b.getSize(), size, type));
          ExpectEqual(shared[0], Sum(b.getSize(), size, type));
        }
      }
    });
  }
}

TEST(HierarchicalChunksTest, OtherReductions) {
  using Op = c10d::ReduceOp;
  const auto over = [](int n, int64_t size, auto combine) {
    at::Tensor all = Mine(0, size, at::kInt);
    for (int r = 1; r < n; ++r) combine(all, Mine(r, size, at::kInt));
    return all;
  };
  for (const Hosts& hosts : kLayouts) {
    OnHosts(hosts, [&](c10d::Backend& b) {
      const int n = b.getSize();
      for (const int64_t size : kChunkSizes) {
        const auto reduce = [&](Op op, at::ScalarType type) {
          Tensors tensors = {Mine(b.getRank(), size, type)};
          b.allreduce(tensors, With(std::move(op)))->wait();
          return tensors[0];
        };
        ExpectEqual(reduce(Op::MIN, at::kInt), Mine(0, size, at::kInt));
        ExpectEqual(reduce(Op::MAX, at::kInt), Mine(2, size, at::kInt));
        ExpectEqual(reduce(Op::PRODUCT, at::kInt),
                    over(n, size, [](at::Tensor& a, const at::Tensor& t) {
                      a.mul_(t);
                    }));
        ExpectEqual(reduce(Op::BXOR, at::kInt),
                    over(n, size, [](at::Tensor& a, const at::Tensor& t) {
                      a.bitwise_xor_(t);
                    }));
        ExpectEqual(reduce(Op::AVG, at::kDouble),
                    Sum(n, size, at::kDouble).div(n));
        ExpectEqual(reduce(c10d::makePreMulSum(0.5), at::kFloat),
                    Sum(n, size, at::kFloat).mul(0.5));
      }
    });
  }
}

TEST(HierarchicalChunksTest, BroadcastsFromEveryRoot) {
  for (const Hosts& hosts : kLayouts) {
    OnHosts(hosts, [](c10d::Backend& b) {
      for (int root = 0; root < b.getSize(); ++root) {
        for (const int64_t size : kChunkSizes) {
          c10d::BroadcastOptions options;
          options.rootRank = root;
          Tensors tensors = {Mine(b.getRank(), size, at::kFloat)};
          b.broadcast(tensors, options)->wait();
          ExpectEqual(tensors[0], Mine(root, size, at::kFloat));
        }
      }
    });
  }
}

// One that was started while others are on their way waits for its turn.
TEST(HierarchicalChunksTest, SeveralAtOnceDoNotMix) {
  OnHosts(kLayouts[1], [](c10d::Backend& b) {
    std::vector<Tensors> tensors;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 4; ++i) {
      tensors.push_back({Mine(b.getRank(), 5003 + i, at::kFloat)});
    }
    for (Tensors& each : tensors) works.push_back(b.allreduce(each));
    for (int i = 3; i >= 0; --i) {
      works[i]->wait();
      ExpectEqual(tensors[i][0], Sum(b.getSize(), 5003 + i, at::kFloat));
    }
  });
}

// Breaks at the third chunk, and tells the other hosts as a connection does.
class CutCable : public c10d::Backend {
 public:
  explicit CutCable(BackendPtr inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}
  c10::intrusive_ptr<c10d::Work> allreduce(
      Tensors& tensors, const c10d::AllreduceOptions& options) override {
    if (++calls_ == 3) {
      inner_->abort();
      TORCH_CHECK(false, "the cable was cut");
    }
    return inner_->allreduce(tensors, options);
  }

 private:
  const BackendPtr inner_;
  int calls_ = 0;
};

TEST(HierarchicalChunksTest, AFailureBetweenChunksIsToldToAllRanks) {
  const Hosts& hosts = kLayouts[1];
  OnHosts(
      hosts,
      [&](c10d::Backend& b) {
        Tensors tensors = {Mine(b.getRank(), 20011, at::kFloat)};
        const std::string error =
            ErrorOf([&] { b.allreduce(tensors)->wait(); });
        EXPECT_THAT(error,
                    HasSubstr(hosts[b.getRank()] == "a" ? "the cable was cut"
                                                        : "gave up"))
            << "rank " << b.getRank();
      },
      [](int host, BackendPtr leaders) -> BackendPtr {
        if (host != 0) return leaders;
        return c10::make_intrusive<CutCable>(std::move(leaders));
      });
}

at::Tensor Values(int rank, int64_t size) {
  return at::arange(size, at::kFloat).add(rank).mul(0.37).sin();
}

// Over Gloo, in chunks of the size that programs use.
at::Tensor SumOverGloo(const Hosts& hosts) {
  constexpr int64_t kSize = 3'000'017;
  constexpr std::chrono::seconds kTimeout(60);
  const StorePtr store = NewHashStore(kTimeout);
  const int n = static_cast<int>(hosts.size());
  // Not on the ranks' threads: whether operators give each of them the same
  // values is not what is tested.
  std::vector<at::Tensor> sums;
  for (int r = 0; r < n; ++r) sums.push_back(Values(r, kSize));
  OnThreads(n, [&](int rank) {
    CommunicatorOptions options;
    options.host = hosts[rank];
    options.timeout = kTimeout;
    auto world = Communicator::Create(store, rank, n, "world", options);
    ASSERT_TRUE(world.ok()) << world.status();
    const absl::Status status = (*world)->AllReduceSum(sums[rank]);
    EXPECT_TRUE(status.ok()) << status;
  });
  for (const at::Tensor& sum : sums) ExpectEqual(sum, sums[0]);
  return sums[0];
}

TEST(HierarchicalChunksTest, AllRanksAndAllRunsHaveTheSameBits) {
  const at::Tensor once = SumOverGloo(kLayouts[1]);
  ExpectEqual(SumOverGloo(kLayouts[1]), once);
  at::Tensor expected = Values(0, once.numel());
  for (int r = 1; r < 6; ++r) expected.add_(Values(r, once.numel()));
  const at::Tensor off = once.sub(expected).abs();
  EXPECT_LT(off.max().item<float>(), 1e-5)
      << off.gt(1e-5).sum().item<int64_t>() << " elements are off, most of all "
      << off.argmax().item<int64_t>();
}

}  // namespace
}  // namespace tandem::hierarchical_chunks_test
