// The c10d backend of shared memory, with threads as ranks: every operation
// against its closed form.

#include "core/shm_backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "core/communicator.h"
#include "core/completion_notice.h"
#include "core/status_macros.h"
#include "core/testing/thread_ranks.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

// The last two go through several slots, and are in the background.
constexpr int64_t kSizes[] = {0, 1, 13, 997, 5003, 40009, 300007};

// Runs `fn` on `n` ranks, each with a backend, and expects no failure.
void OnRanks(int n, const std::function<void(c10d::Backend&)>& fn,
             int timeout_ms = 30000) {
  CommunicatorOptions options;
  options.timeout = std::chrono::milliseconds(timeout_ms);
  const StorePtr store = NewHashStore(options.timeout);
  const absl::Status status =
      RunThreadRanks(n, [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(
            auto backend,
            ShmBackend::Create(store, world.rank(), n, options.timeout));
        fn(*backend);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
}

void Everywhere(const std::vector<at::ScalarType>& dtypes,
                const std::function<void(c10d::Backend&, int64_t size,
                                         at::ScalarType dtype)>& fn) {
  for (const int n : {1, 2, 3, 7}) {
    OnRanks(n, [&](c10d::Backend& backend) {
      for (const at::ScalarType dtype : dtypes) {
        for (const int64_t size : kSizes) fn(backend, size, dtype);
      }
    });
  }
}

const std::vector<at::ScalarType> kNumbers = {
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
    at::kShort, at::kInt,    at::kLong, at::kByte};
const std::vector<at::ScalarType> kSome = {at::kFloat, at::kByte, at::kLong};

// Small whole numbers, so that sums are exact in every dtype.
at::Tensor Mine(int rank, int64_t size, at::ScalarType dtype) {
  return at::arange(size, at::kLong).remainder(3).add(rank % 3).to(dtype);
}

at::Tensor Sum(int ranks, int64_t size, at::ScalarType dtype) {
  at::Tensor sum = at::zeros({size}, at::kLong);
  for (int r = 0; r < ranks; ++r) sum.add_(Mine(r, size, at::kLong));
  return sum.to(dtype);
}

// Not EXPECT_EQ of tensors, whose message would be all their elements.
void ExpectEqual(const at::Tensor& got, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(got, expected))
      << got.numel() << " elements of " << got.scalar_type();
}

c10d::AllreduceOptions With(c10d::ReduceOp op) {
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  return options;
}

// A tensor in the backend's own memory, with these values.
at::Tensor Shared(c10d::Backend& backend, const at::Tensor& values) {
  at::Tensor tensor =
      backend.allocateTensor(values.numel(), values.scalar_type());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0U);
  tensor.copy_(values);
  return tensor;
}

TEST(ShmBackendTest, AllReduceSums) {
  Everywhere(kNumbers, [](c10d::Backend& b, int64_t size, at::ScalarType type) {
    Tensors staged = {Mine(b.getRank(), size, type)};
    Tensors shared = {Shared(b, staged[0])};
    b.allreduce(staged)->wait();
    b.allreduce(shared)->wait();
    ExpectEqual(staged[0], Sum(b.getSize(), size, type));
    ExpectEqual(shared[0], Sum(b.getSize(), size, type));
  });
}

TEST(ShmBackendTest, OneRankWithoutSharedMemoryMakesAllStage) {
  OnRanks(3, [](c10d::Backend& b) {
    for (const int64_t size : kSizes) {
      const at::Tensor mine = Mine(b.getRank(), size, at::kFloat);
      Tensors tensors = {b.getRank() == 1 ? mine : Shared(b, mine)};
      b.allreduce(tensors)->wait();
      ExpectEqual(tensors[0], Sum(3, size, at::kFloat));
    }
  });
}

TEST(ShmBackendTest, ASliceOfASharedTensorIsReducedAlone) {
  OnRanks(2, [](c10d::Backend& b) {
    at::Tensor whole = Shared(b, Mine(b.getRank(), 100003, at::kFloat));
    Tensors slice = {whole.narrow(0, 16, 70001)};
    b.allreduce(slice)->wait();
    ExpectEqual(slice[0], Sum(2, 100003, at::kFloat).narrow(0, 16, 70001));
    ExpectEqual(whole.narrow(0, 0, 16), Mine(b.getRank(), 16, at::kFloat));
    ExpectEqual(whole.narrow(0, 70017, 29986),
                Mine(b.getRank(), 100003, at::kFloat).narrow(0, 70017, 29986));
  });
}

TEST(ShmBackendTest, EveryWayGivesTheBitsOfSummingInRankOrder) {
  for (const int n : {2, 3, 7}) {
    for (const int64_t size : {997, 300007}) {
      OnRanks(n, [&](c10d::Backend& b) {
        const auto values = [&](int rank) {
          return at::arange(size, at::kFloat).add(rank).mul(0.37).sin();
        };
        for (const double factor : {1.0, 1.0 / 3}) {
          at::Tensor expected = values(0).mul(factor);
          for (int r = 1; r < n; ++r) expected.add_(values(r).mul(factor));
          Tensors staged = {values(b.getRank())};
          Tensors shared = {Shared(b, staged[0])};
          const auto options =
              With(factor == 1 ? c10d::ReduceOp(c10d::ReduceOp::SUM)
                               : c10d::makeNCCLPreMulSum(factor));
          b.allreduce(staged, options)->wait();
          b.allreduce(shared, options)->wait();
          ExpectEqual(staged[0], expected);
          ExpectEqual(shared[0], expected);
        }
      });
    }
  }
}

TEST(ShmBackendTest, TwoRanksGetGloosBits) {
  const auto run = [](const std::string& name, at::ScalarType dtype) {
    CommunicatorOptions options;
    options.backend = name;
    at::Tensor result;
    const absl::Status status = RunThreadRanks(
        2,
        [&](Communicator& world) -> absl::Status {
          at::Tensor tensor = at::arange(10007, at::kFloat)
                                  .add(world.rank())
                                  .mul(0.37)
                                  .sin()
                                  .to(dtype);
          TANDEM_RETURN_IF_ERROR(world.AllReduceSum(tensor));
          if (world.rank() == 0) result = tensor;
          return absl::OkStatus();
        },
        options);
    EXPECT_TRUE(status.ok()) << status;
    return result;
  };
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    ExpectEqual(run("shm", dtype), run("gloo", dtype));
  }
}

TEST(ShmBackendTest, OtherReductions) {
  Everywhere({at::kInt}, [](c10d::Backend& b, int64_t size, at::ScalarType) {
    const int n = b.getSize();
    const auto reduce = [&](c10d::ReduceOp::RedOpType op) {
      Tensors tensors = {Mine(b.getRank(), size, at::kInt)};
      b.allreduce(tensors, With(op))->wait();
      return tensors[0];
    };
    const auto over =
        [&](const std::function<void(at::Tensor&, at::Tensor)>& combine) {
          at::Tensor all = Mine(0, size, at::kInt);
          for (int r = 1; r < n; ++r) combine(all, Mine(r, size, at::kInt));
          return all;
        };
    ExpectEqual(reduce(c10d::ReduceOp::MIN), Mine(0, size, at::kInt));
    ExpectEqual(reduce(c10d::ReduceOp::MAX),
                Mine(std::min(n - 1, 2), size, at::kInt));
    ExpectEqual(reduce(c10d::ReduceOp::PRODUCT),
                over([](at::Tensor& a, at::Tensor t) { a.mul_(t); }));
    ExpectEqual(reduce(c10d::ReduceOp::BAND),
                over([](at::Tensor& a, at::Tensor t) { a.bitwise_and_(t); }));
    ExpectEqual(reduce(c10d::ReduceOp::BOR),
                over([](at::Tensor& a, at::Tensor t) { a.bitwise_or_(t); }));
    Tensors average = {Mine(b.getRank(), size, at::kDouble)};
    b.allreduce(average, With(c10d::ReduceOp::AVG))->wait();
    ExpectEqual(average[0], Sum(n, size, at::kDouble).div(n));
  });
}

TEST(ShmBackendTest, BroadcastFromEveryRoot) {
  Everywhere(kSome, [](c10d::Backend& b, int64_t size, at::ScalarType type) {
    for (int root = 0; root < b.getSize(); ++root) {
      Tensors tensors = {Mine(b.getRank(), size, type)};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      b.broadcast(tensors, options)->wait();
      ExpectEqual(tensors[0], Mine(root, size, type));
    }
  });
}

TEST(ShmBackendTest, ReduceGivesTheRootTheSumAndLeavesTheOthers) {
  Everywhere(kSome, [](c10d::Backend& b, int64_t size, at::ScalarType type) {
    Tensors tensors = {Mine(b.getRank(), size, type)};
    c10d::ReduceOptions options;
    options.rootRank = b.getSize() - 1;
    b.reduce(tensors, options)->wait();
    ExpectEqual(tensors[0], b.getRank() == options.rootRank
                                ? Sum(b.getSize(), size, type)
                                : Mine(b.getRank(), size, type));
  });
}

// Every rank's tensors, one for each rank.
Tensors Empties(int n, int64_t size, at::ScalarType type) {
  Tensors tensors;
  for (int r = 0; r < n; ++r) tensors.push_back(at::empty({size}, type));
  return tensors;
}

Tensors All(int n, int64_t size, at::ScalarType type) {
  Tensors tensors;
  for (int r = 0; r < n; ++r) tensors.push_back(Mine(r, size, type));
  return tensors;
}

TEST(ShmBackendTest, AllGatherBothWays) {
  Everywhere(kSome, [](c10d::Backend& b, int64_t size, at::ScalarType type) {
    const int n = b.getSize();
    Tensors mine = {Mine(b.getRank(), size, type)};
    std::vector<Tensors> lists = {Empties(n, size, type)};
    b.allgather(lists, mine)->wait();
    at::Tensor whole = at::empty({n * size}, type);
    b._allgather_base(whole, mine[0])->wait();
    ExpectEqual(at::cat(lists[0]), at::cat(All(n, size, type)));
    ExpectEqual(whole, at::cat(All(n, size, type)));
  });
}

TEST(ShmBackendTest, GatherAndScatterByRank) {
  Everywhere(kSome, [](c10d::Backend& b, int64_t size, at::ScalarType type) {
    const int n = b.getSize();
    const int root = n / 2;
    const bool is_root = b.getRank() == root;
    Tensors mine = {Mine(b.getRank(), size, type)};
    std::vector<Tensors> lists;
    if (is_root) lists.push_back(Empties(n, size, type));
    c10d::GatherOptions gather;
    gather.rootRank = root;
    b.gather(lists, mine, gather)->wait();
    if (is_root) ExpectEqual(at::cat(lists[0]), at::cat(All(n, size, type)));
    Tensors back = {at::empty({size}, type)};
    c10d::ScatterOptions scatter;
    scatter.rootRank = root;
    b.scatter(back, lists, scatter)->wait();
    ExpectEqual(back[0], mine[0]);
  });
}

TEST(ShmBackendTest, ReduceScatterBothWays) {
  Everywhere(kNumbers, [](c10d::Backend& b, int64_t size, at::ScalarType type) {
    const int n = b.getSize();
    // Rank r gives rank d its own numbers, r + d further on.
    std::vector<Tensors> inputs(1);
    for (int d = 0; d < n; ++d) {
      inputs[0].push_back(Mine(b.getRank() + d, size, type));
    }
    at::Tensor expected = at::zeros({size}, at::kLong);
    for (int r = 0; r < n; ++r) {
      expected.add_(Mine(r + b.getRank(), size, at::kLong));
    }
    Tensors one = {at::empty({size}, type)};
    b.reduce_scatter(one, inputs)->wait();
    at::Tensor whole = at::cat(inputs[0]);
    at::Tensor other = at::empty({size}, type);
    b._reduce_scatter_base(other, whole)->wait();
    ExpectEqual(one[0], expected.to(type));
    ExpectEqual(other, expected.to(type));
  });
}

TEST(ShmBackendTest, AllToAllOfListsOfAnySizes) {
  Everywhere(kSome, [](c10d::Backend& b, int64_t size, at::ScalarType type) {
    const int n = b.getSize();
    // From r to d: size + r + d elements.
    const auto length = [&](int r, int d) { return size + r + 2 * d; };
    Tensors inputs, outputs, expected;
    for (int r = 0; r < n; ++r) {
      inputs.push_back(Mine(b.getRank() + r, length(b.getRank(), r), type));
      outputs.push_back(at::empty({length(r, b.getRank())}, type));
      expected.push_back(Mine(r + b.getRank(), length(r, b.getRank()), type));
    }
    b.alltoall(outputs, inputs)->wait();
    ExpectEqual(at::cat(outputs), at::cat(expected));
  });
}

TEST(ShmBackendTest, AllToAllOfOneTensorInSplits) {
  Everywhere(kSome, [](c10d::Backend& b, int64_t size, at::ScalarType type) {
    const int n = b.getSize();
    std::vector<int64_t> none;
    at::Tensor in = at::cat(Tensors(n, Mine(b.getRank(), size, type)));
    at::Tensor out = at::empty({n * size}, type);
    b.alltoall_base(out, in, none, none)->wait();
    ExpectEqual(out, at::cat(All(n, size, type)));
    // Rank r gives rank d (r + d) rows of two.
    std::vector<int64_t> to, from;
    Tensors expected;
    for (int r = 0; r < n; ++r) {
      to.push_back(b.getRank() + r);
      from.push_back(b.getRank() + r);
      expected.push_back(at::full({b.getRank() + r, 2}, r, at::kFloat));
    }
    int64_t rows = 0;
    for (const int64_t split : to) rows += split;
    in = at::full({rows, 2}, b.getRank(), at::kFloat);
    out = at::empty({rows, 2}, at::kFloat);
    b.alltoall_base(out, in, from, to)->wait();
    ExpectEqual(out, at::cat(expected));
  });
}

TEST(ShmBackendTest, ManyAreIssuedBeforeAnyIsWaitedFor) {
  for (const int n : {2, 7}) {
    OnRanks(n, [&](c10d::Backend& b) {
      std::vector<std::pair<Tensors, c10::intrusive_ptr<c10d::Work>>> issued;
      for (int i = 0; i < 60; ++i) {
        const int64_t size = kSizes[i % 7];
        const at::Tensor mine = Mine(b.getRank(), size, at::kFloat);
        Tensors tensors = {i % 2 == 0 ? mine : Shared(b, mine)};
        auto work = b.allreduce(tensors);
        issued.emplace_back(tensors, work);
      }
      // From the last on, and some never.
      for (int i = 59; i > 40; --i) issued[i].second->wait();
      for (int i = 0; i < 60; ++i) {
        ExpectEqual(issued[i].first[0],
                    Sum(n, issued[i].first[0].numel(), at::kFloat));
      }
    });
  }
}

// A rank that waits for its own part needs another's, who has issued the
// operation and went on to something else.
TEST(ShmBackendTest, WhatNobodyWaitsForGoesOnAllTheSame) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors small = {Mine(b.getRank(), 997, at::kFloat)};
    Tensors middle = {Mine(b.getRank(), 40009, at::kFloat)};
    auto first = b.allreduce(small);
    auto second = b.allreduce(middle);
    if (b.getRank() == 0) {
      second->wait();
      Tensors done = {at::zeros({1})};
      b.send(done, 1, 0)->wait();
    } else {
      Tensors done = {at::zeros({1})};
      b.recv(done, 0, 0)->wait();
      second->wait();
    }
    ExpectEqual(middle[0], Sum(2, 40009, at::kFloat));
  });
}

TEST(ShmBackendTest, FuturesCompleteWithoutAWait) {
  OnRanks(3, [](c10d::Backend& b) {
    for (const int64_t size : kSizes) {
      Tensors tensors = {Mine(b.getRank(), size, at::kFloat)};
      auto work = b.allreduce(tensors);
      auto future = work->getFuture();
      future->wait();
      EXPECT_TRUE(work->isCompleted() && work->isSuccess());
      ExpectEqual(future->value().toTensorVector()[0],
                  Sum(3, size, at::kFloat));
    }
  });
}

TEST(ShmBackendTest, ACompletionIsToldBeforeTheWaitReturns) {
  OnRanks(2, [](c10d::Backend& b) {
    for (const int64_t size : kSizes) {
      Tensors tensors = {Mine(b.getRank(), size, at::kFloat)};
      auto work = b.allreduce(tensors);
      int told = 0;
      auto& notifier = dynamic_cast<NotifiesCompletion&>(*work);
      notifier.OnCompletion([&] { ++told; });
      work->wait();
      EXPECT_EQ(told, 1);
      notifier.OnCompletion([&] { ++told; });
      EXPECT_EQ(told, 2);
    }
  });
}

TEST(ShmBackendTest, AWaitMayEndBeforeTheWorkDoes) {
  for (const int64_t size : {3, 300007}) {
    OnRanks(2, [&](c10d::Backend& b) {
      Tensors tensors = {Mine(b.getRank(), size, at::kFloat)};
      if (b.getRank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
      auto work = b.allreduce(tensors);
      if (b.getRank() == 0) {
        const absl::Status early =
            CatchTorch([&] { work->wait(std::chrono::milliseconds(20)); });
        EXPECT_TRUE(absl::IsDeadlineExceeded(early)) << early;
        EXPECT_FALSE(work->isCompleted());
      }
      work->wait(std::chrono::seconds(20));
      ExpectEqual(tensors[0], Sum(2, size, at::kFloat));
    });
  }
}

TEST(ShmBackendTest, PollingIsEnough) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors tensors = {Mine(b.getRank(), 13, at::kFloat)};
    auto work = b.allreduce(tensors);
    while (!work->isCompleted()) std::this_thread::yield();
    ExpectEqual(tensors[0], Sum(2, 13, at::kFloat));
  });
}

TEST(ShmBackendTest, MessagesOfAnySizeFindTheirReceivers) {
  for (const int n : {2, 7}) {
    OnRanks(n, [&](c10d::Backend& b) {
      const int to = (b.getRank() + 1) % n;
      const int from = (b.getRank() + n - 1) % n;
      for (const int64_t size : kSizes) {
        Tensors out = {Mine(b.getRank(), size, at::kFloat)};
        Tensors in = {at::empty({size})};
        // All receive first.
        auto receive = b.recv(in, from, 3);
        auto send = b.send(out, to, 3);
        receive->wait();
        send->wait();
        ExpectEqual(in[0], Mine(from, size, at::kFloat));
      }
    });
  }
}

TEST(ShmBackendTest, MessagesAreToldApartByTagAndKeepTheirOrder) {
  OnRanks(2, [](c10d::Backend& b) {
    constexpr int64_t kBig = 200003;  // more than goes through at once
    if (b.getRank() == 0) {
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      std::vector<Tensors> held;
      for (int i = 0; i < 6; ++i) {
        held.push_back({at::full({kBig}, i, at::kInt)});
        works.push_back(b.send(held.back(), 1, i % 3));
      }
      for (auto& work : works) work->wait();
    } else {
      for (const int tag : {2, 1, 0}) {
        for (const int i : {tag, tag + 3}) {
          Tensors in = {at::zeros({kBig}, at::kInt)};
          b.recv(in, 0, tag)->wait();
          ExpectEqual(in[0], at::full({kBig}, i, at::kInt));
        }
      }
    }
  });
}

std::string ErrorOf(const std::function<void()>& fn) {
  return std::string(CatchTorch(fn).message());
}

TEST(ShmBackendTest, AMessageOfAnotherSizeIsRefused) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors three = {at::zeros({3})};
    Tensors four = {at::zeros({4})};
    if (b.getRank() == 0) {
      b.send(three, 1, 5)->wait();
    } else {
      EXPECT_THAT(ErrorOf([&] { b.recv(four, 0, 5)->wait(); }),
                  HasSubstr("rank 0 sent 12 bytes with tag 5, where 16 bytes"));
    }
  });
}

TEST(ShmBackendTest, RanksThatDisagreeAreToldWhoDoesWhat) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors tensors = {at::zeros({b.getRank() == 0 ? 10 : 2})};
    const absl::Status status = CatchTorch([&] {
      if (b.getRank() == 0) {
        b.allreduce(tensors)->wait();
      } else {
        b.broadcast(tensors)->wait();
      }
    });
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("ranks disagree"),
                      HasSubstr("all-reduce of 40 bytes of Float (sum)"),
                      HasSubstr("broadcast of 8 bytes, root 0")));
  });
}

TEST(ShmBackendTest, ATimeoutNamesTheRanksThatWereMissing) {
  for (const int64_t size : {3, 300007}) {
    OnRanks(
        3,
        [&](c10d::Backend& b) {
          if (b.getRank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1500));
            return;
          }
          Tensors tensors = {at::zeros({size})};
          auto work = b.allreduce(tensors);
          const absl::Status status = CatchTorch([&] { work->wait(); });
          EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
          EXPECT_THAT(
              std::string(status.message()),
              ContainsRegex("timed out waiting for rank 1 .pid [0-9]+.$"));
          EXPECT_EQ(CatchTorch([&] { b.barrier()->wait(); }), status)
              << "the group is of no more use";
        },
        500);
  }
}

TEST(ShmBackendTest, ARankThatLeavesIsToldAtOnce) {
  OnRanks(3, [](c10d::Backend& b) {
    b.barrier()->wait();
    if (b.getRank() == 2) return;
    EXPECT_THAT(ErrorOf([&] { b.barrier()->wait(); }),
                AnyOf(ContainsRegex("^rank 2 .pid [0-9]+. left the group$"),
                      HasSubstr("gave up: rank 2 (pid ")));
  });
}

TEST(ShmBackendTest, ARankThatGivesUpTellsWhy) {
  OnRanks(3, [](c10d::Backend& b) {
    b.barrier()->wait();
    if (b.getRank() == 2) {
      static_cast<ShmBackend&>(b).Abort("the data ran out");
      EXPECT_THAT(ErrorOf([&] { b.barrier()->wait(); }),
                  HasSubstr("this rank gave up: the data ran out"));
      return;
    }
    Tensors in = {at::zeros({1})};
    EXPECT_THAT(ErrorOf([&] {
                  b.getRank() == 0 ? b.barrier()->wait()
                                   : b.recv(in, 2, 0)->wait();
                }),
                HasSubstr("rank 2 gave up: the data ran out"));
  });
}

TEST(ShmBackendTest, WhatItDoesNotTakeIsRefusedAndBreaksNothing) {
  OnRanks(2, [](c10d::Backend& b) {
    const auto refused = [&](at::Tensor tensor, c10d::ReduceOp op) {
      Tensors tensors = {std::move(tensor)};
      return absl::IsInvalidArgument(
          CatchTorch([&] { b.allreduce(tensors, With(op)); }));
    };
    using Op = c10d::ReduceOp;
    EXPECT_TRUE(refused(at::zeros({2, 3}).t(), Op(Op::SUM)));
    EXPECT_TRUE(refused(at::zeros({2}), Op(Op::BAND)));
    EXPECT_TRUE(refused(at::zeros({2}, at::kInt), Op(Op::AVG)));
    EXPECT_TRUE(refused(at::zeros({2}, at::kComplexFloat), Op(Op::SUM)));
    Tensors two = {at::zeros({2}), at::zeros({2})};
    EXPECT_FALSE(CatchTorch([&] { b.allreduce(two); }).ok());
    Tensors one = {at::zeros({2})};
    EXPECT_FALSE(CatchTorch([&] { b.send(one, 2, 0); }).ok());
    b.barrier()->wait();
  });
}

TEST(ShmBackendTest, TensorsOutliveTheGroupThatMadeThem) {
  at::Tensor kept;
  OnRanks(2, [&](c10d::Backend& b) {
    at::Tensor tensor = Shared(b, Mine(0, 997, at::kFloat));
    if (b.getRank() == 0) kept = tensor;
  });
  ExpectEqual(kept, Mine(0, 997, at::kFloat));
}

}  // namespace
}  // namespace tandem
