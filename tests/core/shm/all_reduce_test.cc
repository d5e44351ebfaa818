// The all-reduce through shared memory: its ways, its bits, its reductions.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "tests/core/shm/ranks.h"

namespace tandem::all_reduce_test {
namespace {

TEST(ShmAllReduceTest, AllReduceSums) {
  Everywhere(kNumbers, [](c10d::Backend& b, int64_t size, at::ScalarType type) {
    Tensors staged = {Mine(b.getRank(), size, type)};
    Tensors shared = {Shared(b, staged[0])};
    b.allreduce(staged)->wait();
    b.allreduce(shared)->wait();
    ExpectEqual(staged[0], Sum(b.getSize(), size, type));
    ExpectEqual(shared[0], Sum(b.getSize(), size, type));
  });
}

TEST(ShmAllReduceTest, OneRankWithoutSharedMemoryMakesAllStage) {
  OnRanks(3, [](c10d::Backend& b) {
    for (const int64_t size : kSizes) {
      const at::Tensor mine = Mine(b.getRank(), size, at::kFloat);
      Tensors tensors = {b.getRank() == 1 ? mine : Shared(b, mine)};
      b.allreduce(tensors)->wait();
      ExpectEqual(tensors[0], Sum(3, size, at::kFloat));
    }
  });
}

TEST(ShmAllReduceTest, ASliceOfASharedTensorIsReducedAlone) {
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

TEST(ShmAllReduceTest, EveryWayGivesTheBitsOfSummingInRankOrder) {
  // 20 ranks divide what fewer sum at once.
  for (const int n : {2, 3, 7, 20}) {
    for (const int64_t size : {997, 16001, 300007}) {
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
                               : c10d::makePreMulSum(factor));
          b.allreduce(staged, options)->wait();
          b.allreduce(shared, options)->wait();
          ExpectEqual(staged[0], expected);
          ExpectEqual(shared[0], expected);
        }
      });
    }
  }
}

TEST(ShmAllReduceTest, TwoRanksGetGloosBits) {
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

TEST(ShmAllReduceTest, OtherReductions) {
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

TEST(ShmAllReduceTest, TensorsOutliveTheGroupThatMadeThem) {
  at::Tensor kept;
  OnRanks(2, [&](c10d::Backend& b) {
    at::Tensor tensor = Shared(b, Mine(0, 997, at::kFloat));
    if (b.getRank() == 0) kept = tensor;
  });
  ExpectEqual(kept, Mine(0, 997, at::kFloat));
}

// Collectives through shared memory, with threads as ranks: every operation
// against its closed form.

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

TEST(ShmBackendTest, BroadcastOfOneTensorIntoSeveral) {
  OnRanks(2, [](c10d::Backend& b) {
    for (const int64_t size : {5003, 300007}) {
      for (const int from : {0, 1}) {
        Tensors tensors = {Mine(b.getRank(), size, at::kInt),
                           Mine(b.getRank() + 2, size, at::kInt)};
        c10d::BroadcastOptions options;
        options.rootRank = 1;
        options.rootTensor = from;
        b.broadcast(tensors, options)->wait();
        for (const at::Tensor& tensor : tensors) {
          ExpectEqual(tensor, Mine(1 + 2 * from, size, at::kInt));
        }
      }
    }
    Tensors unlike = {at::zeros({2}), at::zeros({3})};
    EXPECT_THAT(ErrorOf([&] { b.broadcast(unlike); }),
                ::testing::HasSubstr("differ in size"));
    Tensors alike = {at::zeros({2}), at::zeros({2})};
    c10d::BroadcastOptions options;
    options.rootTensor = 2;
    EXPECT_THAT(ErrorOf([&] { b.broadcast(alike, options); }),
                ::testing::HasSubstr("no tensor 2 among 2"));
    b.barrier()->wait();
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
    b.all_gather_single(whole, mine[0])->wait();
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
    b.reduce_scatter_single(other, whole)->wait();
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
    b.all_to_all_single(out, in, none, none)->wait();
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
    b.all_to_all_single(out, in, from, to)->wait();
    ExpectEqual(out, at::cat(expected));
  });
}

}  // namespace
}  // namespace tandem::all_reduce_test
