#include "parallel/comm_hooks/bucket_memory.h"

#include <ATen/ops/zeros.h>

#include "gtest/gtest.h"

namespace tandem::bucket_memory_test {
namespace {

GradBucket Bucket(int64_t index, bool is_last, const at::Tensor& buffer) {
  GradBucket bucket;
  bucket.index = index;
  bucket.is_last = is_last;
  bucket.buffer = buffer;
  bucket.names = {"p"};
  return bucket;
}

TEST(BucketMemory, HoldsWhatWasKeptForTheSameBucket) {
  BucketMemory<int> memory;
  const at::Tensor a = at::zeros({4});
  const at::Tensor b = at::zeros({4});
  EXPECT_EQ(memory.Find(Bucket(0, true, a)), nullptr);
  EXPECT_EQ(*memory.Keep(Bucket(0, true, a), 7), 7);
  ASSERT_NE(memory.Find(Bucket(0, true, a)), nullptr);
  EXPECT_EQ(*memory.Find(Bucket(0, true, a)), 7);
  EXPECT_EQ(memory.Find(Bucket(0, true, b)), nullptr);
  GradBucket renamed = Bucket(0, true, a);
  renamed.names = {"q"};
  EXPECT_EQ(memory.Find(renamed), nullptr);
}

TEST(BucketMemory, LetsGoOfBucketsThatARebuildHasTaken) {
  BucketMemory<int> memory;
  const at::Tensor before = at::zeros({4});
  for (int64_t i = 0; i < 5; ++i) memory.Keep(Bucket(i, i == 4, before), 1);
  EXPECT_EQ(memory.size(), 5u);
  const at::Tensor after = at::zeros({8});
  for (int64_t i = 0; i < 2; ++i) memory.Keep(Bucket(i, i == 1, after), 2);
  EXPECT_EQ(memory.size(), 2u);
  EXPECT_EQ(*memory.Find(Bucket(1, true, after)), 2);
}

}  // namespace
}  // namespace tandem::bucket_memory_test
