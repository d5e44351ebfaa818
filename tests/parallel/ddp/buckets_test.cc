#include "parallel/ddp/buckets.h"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace tandem::buckets_test {
namespace {

std::vector<FlatBuffer*> Pointers(const FlatBuffers& buffers) {
  std::vector<FlatBuffer*> pointers;
  for (const auto& buffer : buffers) pointers.push_back(buffer.get());
  return pointers;
}

NamedTensors Parameters(const std::vector<int64_t>& sizes,
                        at::ScalarType dtype = at::kFloat) {
  NamedTensors parameters;
  for (int64_t size : sizes) {
    parameters.emplace_back(std::to_string(parameters.size()),
                            at::ones({size}, dtype).requires_grad_(true));
  }
  return parameters;
}

// Numbers of slots, by bucket.
std::vector<size_t> Cut(const std::vector<int64_t>& sizes,
                        const std::vector<int64_t>& limits) {
  const FlatBuffers buffers = MakeFlatBuffers(Parameters(sizes));
  const std::vector<int64_t> rank_of(sizes.size());
  std::vector<size_t> counts;
  int64_t offset = 0;
  for (const Bucket& bucket :
       MakeBuckets(Pointers(buffers), {limits}, rank_of)) {
    EXPECT_EQ(bucket.offset, offset);
    offset += bucket.length;
    counts.push_back(bucket.end - bucket.first);
  }
  EXPECT_EQ(offset, buffers.empty() ? 0 : buffers[0]->grads().numel());
  return counts;
}

using Counts = std::vector<size_t>;

// 16 floats are 64 bytes. The last parameter comes first.
TEST(Buckets, FillUpToTheirLimit) {
  EXPECT_EQ(Cut({16, 16, 16, 16}, {64}), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(Cut({16, 16, 16, 16}, {128}), (Counts{2, 2}));
  EXPECT_EQ(Cut({16, 16, 16, 16}, {65}), (Counts{2, 2}));
  EXPECT_EQ(Cut({16, 16, 16, 16}, {1 << 20}), (Counts{4}));
  EXPECT_EQ(Cut({16, 16, 16, 16}, {1}), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(Cut({1000, 1}, {128}), (Counts{2}));  // 1 does not fill one
  EXPECT_EQ(Cut({1, 1000}, {128}), (Counts{1, 1}));
  EXPECT_EQ(Cut({0, 0}, {64}), (Counts{2}));
  EXPECT_EQ(Cut({7}, {64}), (Counts{1}));
}

TEST(Buckets, LimitsCanDiffer) {
  EXPECT_EQ(Cut({16, 16, 16, 16, 16, 16, 16}, {64, 128}), (Counts{1, 2, 2, 2}));
  EXPECT_EQ(Cut({16, 16, 16, 16, 16, 16, 16}, {128, 64, 192}),
            (Counts{2, 1, 3, 1}));
}

TEST(Buckets, DefaultsArePyTorchs) {
  const BucketOptions options;
  EXPECT_EQ(options.limits,
            (std::vector<int64_t>{1024 * 1024, 25 * 1024 * 1024}));
}

// Buckets of two buffers mix, each where its last gradient comes.
TEST(Buckets, ComeInTheOrderInWhichTheyFill) {
  NamedTensors parameters = Parameters({16, 16});  // positions 0, 1
  NamedTensors doubles = Parameters({16, 16}, at::kDouble);
  parameters.insert(parameters.end(), doubles.begin(), doubles.end());
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  ASSERT_EQ(buffers.size(), 2u);
  const auto order = [&](const std::vector<int64_t>& rank_of) {
    std::string text;
    for (const Bucket& b : MakeBuckets(Pointers(buffers), {{1}}, rank_of)) {
      text += std::to_string(b.buffer->slots()[b.first].position);
    }
    return text;
  };
  EXPECT_EQ(order({3, 2, 1, 0}), "3210");
  EXPECT_EQ(order({0, 2, 1, 3}), "0213");
}

// Positions, by bucket, of parameters that become ready as they are listed.
std::vector<std::vector<int64_t>> Assign(NamedTensors parameters,
                                         const std::vector<int64_t>& limits) {
  const auto n = static_cast<int64_t>(parameters.size());
  std::reverse(parameters.begin(), parameters.end());
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  std::vector<int64_t> rank_of;
  for (int64_t i = 0; i < n; ++i) rank_of.push_back(n - 1 - i);
  std::vector<std::vector<int64_t>> buckets;
  for (const Bucket& b : MakeBuckets(Pointers(buffers), {limits}, rank_of)) {
    buckets.emplace_back();
    for (size_t i = b.first; i < b.end; ++i) {
      buckets.back().push_back(n - 1 - b.buffer->slots()[i].position);
    }
  }
  std::sort(buckets.begin(), buckets.end());
  return buckets;
}

// The tables of PyTorch's ComputeBucketAssignmentTest (test_c10d_common.py).
TEST(Buckets, EqualPyTorchsTables) {
  using Table = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(Assign(Parameters({100, 200, 100, 50}), {400}),
            (Table{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(Assign(Parameters({10, 10, 10, 10}), {40, 80}),
            (Table{{0}, {1, 2}, {3}}));
  NamedTensors mixed;
  for (int i = 0; i < 3; ++i) {
    mixed.push_back(Parameters({50})[0]);
    mixed.push_back(Parameters({25}, at::kDouble)[0]);
  }
  EXPECT_EQ(Assign(mixed, {400}), (Table{{0, 2}, {1, 3}, {4}, {5}}));
  EXPECT_EQ(Assign(mixed, {200, 400}), (Table{{0}, {1}, {2, 4}, {3, 5}}));
}

TEST(Buckets, NothingMakesNone) {
  EXPECT_TRUE(MakeBuckets({}, BucketOptions{}, {}).empty());
}

}  // namespace
}  // namespace tandem::buckets_test
