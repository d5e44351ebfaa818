// The all-reduce through shared memory: its ways, its bits, its reductions.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

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

}  // namespace
}  // namespace tandem::all_reduce_test
