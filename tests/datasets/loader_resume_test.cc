// Where a job stands among its samples, and how it goes on, on as many ranks or
// not.

#include <algorithm>
#include <vector>

#include "datasets/loader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/numbers.h"

namespace tandem::loader_resume_test {
namespace {

using ::testing::ElementsAre;

TEST(LoaderResumeTest, ResumedGoesOnAsIfItHadNotStopped) {
  for (int64_t workers : {0, 2}) {
    for (bool drop_last : {false, true}) {
      DistributedSamplerOptions replica;
      replica.num_replicas = 3;
      replica.rank = 1;
      replica.drop_last = drop_last;
      LoaderOptions options = BatchOptions(4, workers);
      options.drop_last = drop_last;
      const auto loader = MakeLoader(std::make_shared<Numbers>(50),
                                     MakeSampler(50, replica), options);
      loader->StartEpoch(2);
      std::vector<SamplerState> states = {loader->state()};
      std::vector<Indices> batches;
      for (int64_t i = 0; i < loader->num_batches(); ++i) {
        batches.push_back(Take(*loader));
        states.push_back(loader->state());
      }
      for (size_t taken = 0; taken <= batches.size(); ++taken) {
        const auto sampler = MakeSampler(50, replica);
        ASSERT_TRUE(sampler->Restore(states[taken]).ok());
        const auto resumed =
            MakeLoader(std::make_shared<Numbers>(50), sampler, options);
        resumed->StartEpoch();
        EXPECT_EQ(TakeAll(*resumed),
                  std::vector<Indices>(batches.begin() + taken, batches.end()));
      }
    }
  }
}

TEST(LoaderResumeTest, TheStateCountsBatchesDeliveredNotReadAhead) {
  const auto numbers = std::make_shared<Numbers>(100);
  const auto loader = MakeLoader(numbers, MakeSampler(100), BatchOptions(5, 2));
  EXPECT_EQ(loader->state(), (SamplerState{0, 0}));
  loader->StartEpoch(3);
  EXPECT_EQ(loader->state(), (SamplerState{3, 0}));
  for (int64_t taken = 1; taken <= 20; ++taken) {
    Take(*loader);
    EXPECT_EQ(loader->state(), (SamplerState{3, 5 * taken}));
    // Two workers, each two batches ahead.
    EXPECT_LE(numbers->reads(), taken + 4);
  }
}

TEST(LoaderResumeTest, AnEpochThatIsOverLeavesNothing) {
  LoaderOptions options = BatchOptions(4);
  options.drop_last = true;
  const auto sampler = MakeSampler(10);
  const auto loader =
      MakeLoader(std::make_shared<Numbers>(10), sampler, options);
  EXPECT_EQ(Epoch(*loader, 0).size(), 2);
  EXPECT_EQ(loader->state(), (SamplerState{0, 10}));
  ASSERT_TRUE(sampler->Restore(loader->state()).ok());
  loader->StartEpoch();
  EXPECT_EQ(loader->num_batches(), 0);
  EXPECT_THAT(Take(*loader), ElementsAre());
}

// One step of a job: every replica's next batch.
Indices Step(const std::vector<std::unique_ptr<Loader>>& loaders) {
  Indices samples;
  for (const auto& loader : loaders) {
    const Indices batch = Take(*loader);
    samples.insert(samples.end(), batch.begin(), batch.end());
  }
  return samples;
}

std::vector<std::unique_ptr<Loader>> Job(int64_t length, int64_t replicas,
                                         int64_t global_batch_size,
                                         const SamplerState& state) {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int64_t rank = 0; rank < replicas; ++rank) {
    DistributedSamplerOptions options;
    options.num_replicas = replicas;
    options.rank = rank;
    const auto sampler = MakeSampler(length, options);
    EXPECT_TRUE(sampler->Restore(state).ok());
    loaders.push_back(MakeLoader(
        std::make_shared<Numbers>(length), sampler,
        BatchOptions(*BatchSizePerReplica(global_batch_size, replicas),
                     rank % 2)));
    loaders.back()->StartEpoch();
  }
  return loaders;
}

// A job that changes its replicas after `steps`. Sorted within each step: which
// replica computes a sample depends on their number.
std::vector<Indices> StepsWithChange(int64_t length, int64_t first,
                                     int64_t then, int64_t steps) {
  constexpr int64_t kGlobalBatch = 12;
  std::vector<Indices> done;
  auto job = Job(length, first, kGlobalBatch, {5, 0});
  for (int64_t i = 0; i < steps; ++i) done.push_back(Sorted(Step(job)));
  const SamplerState state = job[0]->state();
  for (const auto& loader : job) EXPECT_EQ(loader->state(), state);
  job = Job(length, then, kGlobalBatch, state);
  for (Indices step = Step(job); !step.empty(); step = Step(job)) {
    done.push_back(Sorted(step));
  }
  return done;
}

TEST(LoaderResumeTest, AChangeOfReplicasAtAnyStepChangesNoGlobalBatch) {
  for (int64_t length : {48, 60}) {  // no padding
    const auto whole = StepsWithChange(length, 1, 1, 0);
    EXPECT_EQ(Sorted(Flat(whole)), Range(length));
    for (int64_t first : {1, 2, 3, 4, 6, 12}) {
      for (int64_t then : {1, 2, 3, 4, 6, 12}) {
        for (int64_t steps = 0; steps <= length / 12; ++steps) {
          EXPECT_EQ(StepsWithChange(length, first, then, steps), whole)
              << first << " -> " << then << " after " << steps;
        }
      }
    }
  }
}

TEST(LoaderResumeTest, WithPaddingTheWholeEpochIsDealtAllTheSame) {
  for (int64_t then : {1, 2, 3, 4, 6, 12}) {
    for (int64_t steps = 0; steps <= 4; ++steps) {
      Indices all = Flat(StepsWithChange(53, 3, then, steps));
      EXPECT_LT(all.size(), 53 + then);
      all = Sorted(all);
      all.erase(std::unique(all.begin(), all.end()), all.end());
      EXPECT_EQ(all, Range(53));
    }
  }
}

TEST(LoaderResumeTest, EvaluationSeesEverySampleOnceOnAnyNumberOfRanks) {
  for (int64_t length = 0; length <= 50; ++length) {
    for (int64_t replicas = 1; replicas <= 7; ++replicas) {
      Indices all;
      for (int64_t rank = 0; rank < replicas; ++rank) {
        DistributedSamplerOptions options = InOrder();
        options.num_replicas = replicas;
        options.rank = rank;
        options.even = false;
        const auto loader =
            MakeLoader(std::make_shared<Numbers>(length),
                       MakeSampler(length, options), BatchOptions(4));
        const Indices samples = Flat(Epoch(*loader, 0));
        all.insert(all.end(), samples.begin(), samples.end());
      }
      ASSERT_EQ(Sorted(all), Range(length)) << replicas << " replicas";
    }
  }
}

}  // namespace
}  // namespace tandem::loader_resume_test
