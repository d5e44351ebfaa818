#include "datasets/distributed_sampler.h"

#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/datasets/numbers.h"

namespace tandem::distributed_sampler_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DistributedSamplerOptions Replica(int64_t rank, int64_t num_replicas) {
  DistributedSamplerOptions options;
  options.rank = rank;
  options.num_replicas = num_replicas;
  return options;
}

TEST(DistributedSamplerTest, SetEpochChangesTheOrderAndGoesToTheBeginning) {
  const auto sampler = MakeSampler(100);
  const Indices epoch_0 = sampler->Indices();
  sampler->set_epoch(1);
  const Indices epoch_1 = sampler->Indices();
  EXPECT_NE(epoch_0, epoch_1);
  ASSERT_TRUE(sampler->Restore({1, 40}).ok());
  EXPECT_EQ(sampler->Indices(), Indices(epoch_1.begin() + 40, epoch_1.end()));
  sampler->set_epoch(0);
  EXPECT_EQ(sampler->Indices(), epoch_0);
}

TEST(DistributedSamplerTest, RestoredGoesOnAsIfItHadNotStopped) {
  for (bool drop_last : {false, true}) {
    for (int64_t length : {0, 1, 5, 20, 101}) {
      for (int64_t replicas : {1, 2, 3, 7}) {
        DistributedSamplerOptions options = Replica(replicas - 1, replicas);
        options.drop_last = drop_last;
        const auto sampler = MakeSampler(length, options);
        sampler->set_epoch(4);
        const SamplerState start = sampler->state();
        const Indices all = sampler->Indices();
        for (size_t taken = 0; taken <= all.size(); ++taken) {
          ASSERT_TRUE(sampler->Restore(sampler->After(start, taken)).ok());
          EXPECT_EQ(sampler->Indices(),
                    Indices(all.begin() + taken, all.end()));
        }
      }
    }
  }
}

// Every replica takes `samples` (fewer if the epoch ends), after which `state`
// is where the job stands. Returns what was dealt, in the permutation's order.
Indices Deal(int64_t length, DistributedSamplerOptions options, int64_t samples,
             SamplerState& state) {
  std::vector<Indices> dealt;
  SamplerState after;
  for (options.rank = 0; options.rank < options.num_replicas; ++options.rank) {
    const auto sampler = MakeSampler(length, options);
    EXPECT_TRUE(sampler->Restore(state).ok());
    dealt.push_back(sampler->Indices());
    after = sampler->After(state, samples);
  }
  state = after;
  Indices in_order;
  for (int64_t i = 0; i < samples; ++i) {
    for (const Indices& indices : dealt) {
      if (i < static_cast<int64_t>(indices.size())) {
        in_order.push_back(indices[i]);
      }
    }
  }
  return in_order;
}

// Deals with `first` replicas until `samples` each, then the rest with `then`.
Indices DealWithChange(int64_t length, int64_t first, int64_t then,
                       int64_t samples, DistributedSamplerOptions options) {
  SamplerState state{3, 0};
  options.num_replicas = first;
  Indices all = Deal(length, options, samples, state);
  options.num_replicas = then;
  const Indices rest = Deal(length, options, length, state);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

TEST(DistributedSamplerTest, NoSampleIsLostOrRepeatedWhenTheReplicasChange) {
  for (int64_t length : {0, 1, 2, 13, 24, 50}) {
    const Indices whole = WholeEpoch(length);
    for (int64_t first = 1; first <= 8; ++first) {
      for (int64_t then = 1; then <= 8; ++then) {
        for (int64_t samples = 0; samples * first <= length; ++samples) {
          DistributedSamplerOptions padded;
          Indices dealt = DealWithChange(length, first, then, samples, padded);
          const int64_t padding = dealt.size() - length;
          EXPECT_GE(padding, 0);
          EXPECT_LT(padding, then);
          // Padding is at the end, from the epoch's beginning.
          for (int64_t i = 0; i < padding; ++i) {
            EXPECT_EQ(dealt[length + i], whole[i % length]);
          }
          dealt.resize(length);
          EXPECT_EQ(dealt, whole) << length << ": " << first << " -> " << then
                                  << " after " << samples;
        }
      }
    }
  }
}

TEST(DistributedSamplerTest, DropLastLeavesOutLessThanTheLastReplicas) {
  DistributedSamplerOptions options;
  options.drop_last = true;
  for (int64_t length : {0, 1, 13, 24}) {
    const Indices whole = WholeEpoch(length);
    for (int64_t first : {1, 2, 5, 7}) {
      for (int64_t then : {1, 3, 7}) {
        for (int64_t samples = 0; samples * first <= length; ++samples) {
          const Indices dealt =
              DealWithChange(length, first, then, samples, options);
          const int64_t rest = (length - samples * first) % then;
          EXPECT_EQ(dealt, Indices(whole.begin(), whole.end() - rest));
        }
      }
    }
  }
}

TEST(DistributedSamplerTest, SurvivesManyChangesOfReplicas) {
  SamplerState state{3, 0};
  Indices all;
  DistributedSamplerOptions options;
  for (int64_t replicas : {4, 1, 7, 2, 3, 5}) {
    options.num_replicas = replicas;
    const Indices dealt = Deal(101, options, /*samples=*/4, state);
    all.insert(all.end(), dealt.begin(), dealt.end());
  }
  EXPECT_EQ(state, (SamplerState{3, 88}));
  options.num_replicas = 1;
  const Indices rest = Deal(101, options, 13, state);
  all.insert(all.end(), rest.begin(), rest.end());
  EXPECT_EQ(all, WholeEpoch(101));
  EXPECT_EQ(state, (SamplerState{3, 101}));
}

TEST(DistributedSamplerTest, NotEvenCoversEverySampleOnce) {
  for (bool shuffle : {false, true}) {
    for (int64_t length = 0; length <= 50; ++length) {
      for (int64_t replicas = 1; replicas <= 7; ++replicas) {
        Indices all;
        for (int64_t rank = 0; rank < replicas; ++rank) {
          DistributedSamplerOptions options = Replica(rank, replicas);
          options.shuffle = shuffle;
          options.even = false;
          const Indices indices = MakeSampler(length, options)->Indices();
          const int64_t count = indices.size();
          EXPECT_GE(count, length / replicas);
          EXPECT_LE(count, (length + replicas - 1) / replicas);
          all.insert(all.end(), indices.begin(), indices.end());
        }
        EXPECT_EQ(Sorted(all), Range(length));
      }
    }
  }
}

TEST(DistributedSamplerTest, Corners) {
  EXPECT_THAT(MakeSampler(0, Replica(6, 7))->Indices(), IsEmpty());
  EXPECT_THAT(MakeSampler(1, Replica(6, 7))->Indices(), ElementsAre(0));
  DistributedSamplerOptions dropping = Replica(0, 7);
  dropping.drop_last = true;
  EXPECT_THAT(MakeSampler(6, dropping)->Indices(), IsEmpty());
}

TEST(DistributedSamplerTest, RefusesWhatMakesNoSense) {
  const auto error = [](int64_t length, DistributedSamplerOptions options) {
    return std::string(
        DistributedSampler::Create(length, options).status().message());
  };
  EXPECT_THAT(error(-1, {}), HasSubstr("length -1"));
  EXPECT_THAT(error(5, Replica(0, 0)), HasSubstr("num_replicas is 0"));
  EXPECT_THAT(error(5, Replica(2, 2)), HasSubstr("invalid rank 2"));
  EXPECT_THAT(error(5, Replica(-1, 2)), HasSubstr("interval [0, 1]"));
  DistributedSamplerOptions both;
  both.drop_last = true;
  both.even = false;
  EXPECT_THAT(error(5, both), HasSubstr("choose one"));
}

TEST(DistributedSamplerTest, RefusesAStateOfAnotherDataSet) {
  const auto sampler = MakeSampler(10);
  EXPECT_TRUE(sampler->Restore({0, 10}).ok());
  for (const SamplerState& state :
       {SamplerState{0, 11}, SamplerState{0, -1}, SamplerState{-1, 0}}) {
    const absl::Status status = sampler->Restore(state);
    EXPECT_THAT(status, Says("of length 10"));
    EXPECT_EQ(sampler->state(), (SamplerState{0, 10}));
  }
}

// PyTorch's own indices: the table that make_distributed_sampler_table.py
// wrote.
nlohmann::json Table() {
  std::ifstream file("tests/datasets/distributed_sampler_table.json");
  return nlohmann::json::parse(file);
}

// Python's seeds may be negative.
uint64_t Seed(const nlohmann::json& entry) {
  return entry["seed"].is_number_unsigned()
             ? entry["seed"].get<uint64_t>()
             : static_cast<uint64_t>(entry["seed"].get<int64_t>());
}

uint32_t Crc32(const Indices& indices) {
  return crc32(0, reinterpret_cast<const Bytef*>(indices.data()),
               indices.size() * sizeof(int64_t));
}

void ExpectSame(const Indices& indices, const nlohmann::json& expected) {
  if (expected.is_array()) {
    EXPECT_EQ(indices, expected.get<Indices>());
    return;
  }
  ASSERT_EQ(indices.size(), expected["count"].get<size_t>());
  const Indices first = expected["first"].get<Indices>();
  const Indices last = expected["last"].get<Indices>();
  EXPECT_EQ(Indices(indices.begin(), indices.begin() + first.size()), first);
  EXPECT_EQ(Indices(indices.end() - last.size(), indices.end()), last);
  EXPECT_EQ(Crc32(indices), expected["crc32"].get<uint32_t>());
}

TEST(DistributedSamplerTableTest, EqualsPyTorchsIndexForIndex) {
  const nlohmann::json table = Table();
  ASSERT_EQ(table.size(), 990);
  for (const nlohmann::json& entry : table) {
    for (const auto& [rank, expected] : entry["ranks"].items()) {
      SCOPED_TRACE("rank " + rank + " of " + entry.dump().substr(0, 110));
      DistributedSamplerOptions options;
      options.num_replicas = entry["num_replicas"];
      options.rank = std::stoll(rank);
      options.shuffle = entry["shuffle"];
      options.seed = Seed(entry);
      options.drop_last = entry["drop_last"];
      const auto created = DistributedSampler::Create(entry["length"], options);
      ASSERT_TRUE(created.ok()) << created.status();
      DistributedSampler* const sampler = created->get();
      sampler->set_epoch(entry["epoch"]);
      const Indices indices = sampler->Indices();
      EXPECT_EQ(indices.size(), sampler->num_samples());
      ExpectSame(indices, expected);
    }
  }
}

}  // namespace
}  // namespace tandem::distributed_sampler_test
