#include "core/shm/chunks.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "tests/core/shm/ranks.h"

namespace tandem::chunks_test {
namespace {

// Reduce and broadcast of tensors that lie in common memory: on all ranks, or
// on some. (The all-reduce's: shm_all_reduce_test.)

// Too small for it, several blocks, and many.
constexpr int64_t kInPlaceSizes[] = {13, 10007, 150001};

void ReduceAndBroadcast(c10d::Backend& b, at::ScalarType type, bool shared) {
  const int n = b.getSize();
  const int root = n - 1;
  for (const int64_t size : kInPlaceSizes) {
    const at::Tensor mine = Mine(b.getRank(), size, type);
    Tensors tensors = {shared ? Shared(b, mine) : mine.clone()};
    c10d::ReduceOptions reduce;
    reduce.rootRank = root;
    b.reduce(tensors, reduce)->wait();
    ExpectEqual(tensors[0], b.getRank() == root ? Sum(n, size, type) : mine);
    c10d::BroadcastOptions broadcast;
    broadcast.rootRank = root;
    b.broadcast(tensors, broadcast)->wait();
    ExpectEqual(tensors[0], Sum(n, size, type));
  }
}

TEST(ShmInPlaceTest, AllTensorsInCommonMemory) {
  for (const int n : {1, 2, 7}) {
    OnRanks(n,
            [](c10d::Backend& b) { ReduceAndBroadcast(b, at::kFloat, true); });
  }
}

TEST(ShmInPlaceTest, EveryDtype) {
  OnRanks(3, [](c10d::Backend& b) {
    for (const at::ScalarType type : kNumbers) {
      ReduceAndBroadcast(b, type, true);
    }
  });
}

TEST(ShmInPlaceTest, SomeTensorsInCommonMemory) {
  for (const int n : {2, 7}) {
    OnRanks(n, [](c10d::Backend& b) {
      ReduceAndBroadcast(b, at::kFloat, b.getRank() % 2 == 0);
    });
  }
}

}  // namespace
}  // namespace tandem::chunks_test
