// slices_of of datasets/distributed_sampler.h: a batch's samples, and their
// order, whatever the number of replicas.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "datasets/distributed_sampler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/numbers.h"

namespace tandem::distributed_sampler_slices_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DistributedSamplerOptions Slicing(int64_t batch, int64_t num_replicas,
                                  bool drop_last) {
  DistributedSamplerOptions options;
  options.num_replicas = num_replicas;
  options.slices_of = batch;
  options.drop_last = drop_last;
  options.even = drop_last;
  return options;
}

constexpr int64_t kBatch = 84;  // 1, 2, 3, 4 and 7 divide it
const Indices kReplicas = {1, 2, 3, 4, 7};
const Indices kLengths = {0, 1, 2, 83, 84, 85, 97, 168, 251, 509};

// Every replica takes `batches` global batches (fewer if the epoch ends), after
// which `state` is where the job stands. Returns their parts batch by batch, in
// the order of ranks.
Indices DealSlices(int64_t length, DistributedSamplerOptions options,
                   int64_t batches, SamplerState& state) {
  const auto part = static_cast<size_t>(options.slices_of) /
                    static_cast<size_t>(options.num_replicas);
  std::vector<Indices> dealt;
  SamplerState after;
  for (options.rank = 0; options.rank < options.num_replicas; ++options.rank) {
    const auto sampler = MakeSampler(length, options);
    EXPECT_TRUE(sampler->Restore(state).ok());
    dealt.push_back(sampler->Indices());
    EXPECT_EQ(sampler->num_samples(), dealt.back().size());
    after = sampler->After(state, batches * static_cast<int64_t>(part));
  }
  state = after;
  Indices in_order;
  for (size_t begin = 0; begin < static_cast<size_t>(batches) * part;
       begin += part) {
    for (const Indices& indices : dealt) {
      const size_t first = std::min(begin, indices.size());
      const size_t last = std::min(begin + part, indices.size());
      in_order.insert(in_order.end(), indices.begin() + first,
                      indices.begin() + last);
    }
  }
  return in_order;
}

// What all batches of a job come to that goes on with other replicas after some
// of them.
Indices SlicesWithChange(int64_t length, int64_t first, int64_t then,
                         int64_t batches, bool drop_last) {
  SamplerState state{3, 0};
  Indices all =
      DealSlices(length, Slicing(kBatch, first, drop_last), batches, state);
  EXPECT_EQ(state,
            (SamplerState{3, std::min<int64_t>(batches * kBatch, length)}));
  const Indices rest = DealSlices(length, Slicing(kBatch, then, drop_last),
                                  length / kBatch + 1, state);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

TEST(DistributedSamplerSlicesTest, SlicesAreThePermutationWhateverTheReplicas) {
  for (const bool drop_last : {false, true}) {
    for (const int64_t length : kLengths) {
      Indices whole = WholeEpoch(length);
      if (drop_last) whole.resize(length / kBatch * kBatch);
      for (const int64_t first : kReplicas) {
        for (const int64_t then : kReplicas) {
          for (int64_t batches = 0; batches <= length / kBatch; ++batches) {
            EXPECT_EQ(SlicesWithChange(length, first, then, batches, drop_last),
                      whole)
                << length << ": " << first << " -> " << then << " after "
                << batches;
          }
        }
      }
    }
  }
}

// The middle of a batch is no place to stand, but another batch size may have
// left a job anywhere.
TEST(DistributedSamplerSlicesTest, SlicesBeginWhereTheJobStands) {
  const Indices whole = WholeEpoch(101);
  for (const int64_t replicas : kReplicas) {
    SamplerState state{3, 13};
    const auto options = Slicing(kBatch, replicas, /*drop_last=*/false);
    EXPECT_EQ(DealSlices(101, options, 2, state),
              Indices(whole.begin() + 13, whole.end()));
    EXPECT_EQ(state, (SamplerState{3, 101}));
    const auto sampler = MakeSampler(200, options);
    EXPECT_EQ(sampler->After({3, 13}, 1), (SamplerState{3, 13 + kBatch}));
  }
}

TEST(DistributedSamplerSlicesTest, ASlicesTailIsCutWhereAWholeBatchIs) {
  DistributedSamplerOptions options = Slicing(7, 7, /*drop_last=*/false);
  options.shuffle = false;
  for (options.rank = 0; options.rank < 7; ++options.rank) {
    const Indices expected = options.rank < 3
                                 ? Indices{options.rank, 7 + options.rank}
                                 : Indices{options.rank};
    EXPECT_EQ(MakeSampler(10, options)->Indices(), expected);
  }
  options = Slicing(12, 3, /*drop_last=*/false);
  options.shuffle = false;
  options.rank = 1;
  EXPECT_THAT(MakeSampler(18, options)->Indices(),
              ElementsAre(4, 5, 6, 7, 16, 17));
  EXPECT_THAT(MakeSampler(13, options)->Indices(), ElementsAre(4, 5, 6, 7));
  options.rank = 2;
  EXPECT_THAT(MakeSampler(18, options)->Indices(), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(MakeSampler(23, options)->Indices(),
              ElementsAre(8, 9, 10, 11, 20, 21, 22));
  options.rank = 0;
  EXPECT_THAT(MakeSampler(13, options)->Indices(), ElementsAre(0, 1, 2, 3, 12));
}

TEST(DistributedSamplerSlicesTest, RefusesSlicesThatDependOnTheReplicas) {
  const auto error = [](const DistributedSamplerOptions& options) {
    const absl::Status status = DistributedSampler::Create(5, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error(Slicing(64, 3, true)),
              HasSubstr("64 samples cannot be cut for 3 replicas"));
  EXPECT_THAT(error(Slicing(-2, 2, true)), HasSubstr("slices_of is -2"));
  DistributedSamplerOptions padded;
  padded.slices_of = 4;
  EXPECT_THAT(error(padded), HasSubstr("padding would depend"));
}

}  // namespace
}  // namespace tandem::distributed_sampler_slices_test
