// Also tests datasets/prefetcher.h.

#include "datasets/loader.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Indices = std::vector<int64_t>;

// Sample i is the number i.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  std::vector<int64_t> input_shape() const override { return {}; }
  int64_t classes() const override { return size_; }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    ++reads_;
    for (int64_t index : indices) {
      if (index == bad_sample) return absl::DataLossError("unreadable");
      if (index == throwing_sample) throw std::runtime_error("boom\nframe #0");
      if (index == late_sample) released.WaitForNotification();
    }
    // Lets workers overtake each other.
    if (indices[0] % 3 == 0) std::this_thread::yield();
    const int64_t count = indices.size();
    Batch batch{at::empty({count}, at::kLong), at::empty({count}, at::kLong),
                count};
    std::copy(indices.begin(), indices.end(),
              batch.inputs.mutable_data_ptr<int64_t>());
    std::copy(indices.begin(), indices.end(),
              batch.targets.mutable_data_ptr<int64_t>());
    return batch;
  }

  int64_t reads() const { return reads_; }

  int64_t bad_sample = -1;
  int64_t throwing_sample = -1;
  int64_t late_sample = -1;  // waits for `released`
  mutable absl::Notification released;

 private:
  const int64_t size_;
  mutable std::atomic<int64_t> reads_{0};
};

std::shared_ptr<DistributedSampler> MakeSampler(
    int64_t length, const DistributedSamplerOptions& options = {}) {
  auto sampler = DistributedSampler::Create(length, options);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

DistributedSamplerOptions InOrder() {
  DistributedSamplerOptions options;
  options.shuffle = false;
  return options;
}

LoaderOptions BatchesOf(int64_t size, int64_t workers = 0) {
  LoaderOptions options;
  options.batch_size = size;
  options.workers = workers;
  return options;
}

std::unique_ptr<Loader> MakeLoader(std::shared_ptr<const Numbers> numbers,
                                   std::shared_ptr<DistributedSampler> sampler,
                                   const LoaderOptions& options) {
  auto loader = Loader::Create(numbers, sampler, options);
  EXPECT_TRUE(loader.ok()) << loader.status();
  return *std::move(loader);
}

std::unique_ptr<Loader> MakeLoader(int64_t length,
                                   std::shared_ptr<DistributedSampler> sampler,
                                   const LoaderOptions& options) {
  return MakeLoader(std::make_shared<Numbers>(length), sampler, options);
}

// The next batch's samples; empty at the end of the epoch.
Indices Take(Loader& loader) {
  const absl::StatusOr<std::optional<Batch>> batch = loader.Next();
  EXPECT_TRUE(batch.ok()) << batch.status();
  if (!batch.ok() || !batch->has_value()) return {};
  const int64_t* samples = (*batch)->inputs.const_data_ptr<int64_t>();
  return Indices(samples, samples + (*batch)->size);
}

std::vector<Indices> TakeAll(Loader& loader) {
  std::vector<Indices> batches;
  for (Indices batch = Take(loader); !batch.empty(); batch = Take(loader)) {
    batches.push_back(batch);
  }
  return batches;
}

std::vector<Indices> Epoch(Loader& loader, int64_t epoch) {
  loader.StartEpoch(epoch);
  return TakeAll(loader);
}

Indices Flat(const std::vector<Indices>& batches) {
  Indices all;
  for (const Indices& batch : batches) {
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

Indices Sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

Indices Range(int64_t length) {
  Indices range(length);
  std::iota(range.begin(), range.end(), 0);
  return range;
}

TEST(LoaderTest, TheSequenceDoesNotDependOnTheWorkers) {
  for (int64_t length : {0, 1, 10, 101}) {
    for (bool drop_last : {false, true}) {
      for (int64_t workers : {0, 1, 2, 5}) {
        const auto sampler = MakeSampler(length);
        LoaderOptions options = BatchesOf(10, workers);
        options.drop_last = drop_last;
        const auto loader = MakeLoader(length, sampler, options);
        for (int64_t epoch : {0, 1, 7}) {
          const std::vector<Indices> batches = Epoch(*loader, epoch);
          EXPECT_EQ(loader->num_batches(), batches.size());
          Indices expected = sampler->Indices();
          if (drop_last) expected.resize(length / 10 * 10);
          EXPECT_EQ(Flat(batches), expected);
          for (size_t i = 0; i + 1 < batches.size(); ++i) {
            EXPECT_EQ(batches[i].size(), 10);
          }
          EXPECT_THAT(Take(*loader), ElementsAre());  // and remains at the end
        }
      }
    }
  }
}

TEST(LoaderTest, WhatAnotherOwnerDoesToTheSamplerReachesTheLoader) {
  for (int64_t workers : {0, 3}) {
    const auto sampler = MakeSampler(30);
    const auto loader = MakeLoader(30, sampler, BatchesOf(4, workers));
    loader->StartEpoch();
    const std::vector<Indices> epoch_0 = TakeAll(*loader);
    sampler->set_epoch(1);
    loader->StartEpoch();
    const std::vector<Indices> epoch_1 = TakeAll(*loader);
    EXPECT_NE(epoch_0, epoch_1);
    EXPECT_EQ(Flat(epoch_1), sampler->Indices());
  }
}

TEST(LoaderTest, ResumedGoesOnAsIfItHadNotStopped) {
  for (int64_t workers : {0, 2}) {
    for (bool drop_last : {false, true}) {
      DistributedSamplerOptions replica;
      replica.num_replicas = 3;
      replica.rank = 1;
      replica.drop_last = drop_last;
      LoaderOptions options = BatchesOf(4, workers);
      options.drop_last = drop_last;
      const auto loader = MakeLoader(50, MakeSampler(50, replica), options);
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
        const auto resumed = MakeLoader(50, sampler, options);
        resumed->StartEpoch();
        EXPECT_EQ(TakeAll(*resumed),
                  std::vector<Indices>(batches.begin() + taken, batches.end()));
      }
    }
  }
}

TEST(LoaderTest, TheStateCountsBatchesDeliveredNotReadAhead) {
  const auto numbers = std::make_shared<Numbers>(100);
  const auto loader = MakeLoader(numbers, MakeSampler(100), BatchesOf(5, 2));
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

TEST(LoaderTest, AnEpochThatIsOverLeavesNothing) {
  LoaderOptions options = BatchesOf(4);
  options.drop_last = true;
  const auto sampler = MakeSampler(10);
  const auto loader = MakeLoader(10, sampler, options);
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
    loaders.push_back(
        MakeLoader(length, sampler,
                   BatchesOf(*BatchSizePerReplica(global_batch_size, replicas),
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

TEST(LoaderTest, AChangeOfReplicasAtAnyStepChangesNoGlobalBatch) {
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

TEST(LoaderTest, WithPaddingTheWholeEpochIsDealtAllTheSame) {
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

TEST(LoaderTest, EvaluationSeesEverySampleOnceOnAnyNumberOfRanks) {
  for (int64_t length = 0; length <= 50; ++length) {
    for (int64_t replicas = 1; replicas <= 7; ++replicas) {
      Indices all;
      for (int64_t rank = 0; rank < replicas; ++rank) {
        DistributedSamplerOptions options = InOrder();
        options.num_replicas = replicas;
        options.rank = rank;
        options.even = false;
        const auto loader =
            MakeLoader(length, MakeSampler(length, options), BatchesOf(4));
        const Indices samples = Flat(Epoch(*loader, 0));
        all.insert(all.end(), samples.begin(), samples.end());
      }
      ASSERT_EQ(Sorted(all), Range(length)) << replicas << " replicas";
    }
  }
}

TEST(LoaderTest, AnErrorNamesTheBatchAndStaysUntilTheNextEpoch) {
  for (int64_t workers : {0, 1, 3}) {
    const auto numbers = std::make_shared<Numbers>(20);
    numbers->bad_sample = 9;
    const auto loader =
        MakeLoader(numbers, MakeSampler(20, InOrder()), BatchesOf(4, workers));
    loader->StartEpoch(6);
    EXPECT_THAT(Take(*loader), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(Take(*loader), ElementsAre(4, 5, 6, 7));
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = loader->Next().status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(status.message(),
                "cannot read batch 2 of epoch 6, first sample 8: unreadable");
    }
    EXPECT_EQ(loader->state(), (SamplerState{6, 8}));
    loader->StartEpoch();
    EXPECT_THAT(Take(*loader), ElementsAre(0, 1, 2, 3));
  }
}

TEST(LoaderTest, AnExceptionBecomesAStatusOfOneLine) {
  for (int64_t workers : {0, 2}) {
    const auto numbers = std::make_shared<Numbers>(20);
    numbers->throwing_sample = 0;
    const auto loader =
        MakeLoader(numbers, MakeSampler(20, InOrder()), BatchesOf(4, workers));
    loader->StartEpoch();
    const absl::Status status = loader->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(status.message(),
              "cannot read batch 0 of epoch 0, first sample 0: boom");
  }
}

TEST(LoaderTest, ALateWorkerIsNamedAndCanBeWaitedForAgain) {
  const auto numbers = std::make_shared<Numbers>(20);
  numbers->late_sample = 5;
  LoaderOptions options = BatchesOf(4, 2);
  options.timeout = absl::Milliseconds(20);
  const auto loader = MakeLoader(numbers, MakeSampler(20, InOrder()), options);
  loader->StartEpoch();
  absl::StatusOr<std::optional<Batch>> batch = loader->Next();
  while (absl::IsDeadlineExceeded(batch.status())) batch = loader->Next();
  ASSERT_TRUE(batch.ok()) << batch.status();
  const absl::Status status = loader->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("batch 1 of epoch 0, first sample 4"),
                    HasSubstr("within 20ms")));
  EXPECT_EQ(loader->state(), (SamplerState{0, 4}));
  numbers->released.Notify();
  do {
    batch = loader->Next();
  } while (absl::IsDeadlineExceeded(batch.status()));
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ((*batch)->inputs.const_data_ptr<int64_t>()[0], 4);
}

TEST(LoaderTest, CanBeDestroyedOrRestartedAtAnyMoment) {
  for (int64_t workers : {0, 1, 4}) {
    for (int64_t taken = 0; taken <= 6; ++taken) {
      const auto sampler = MakeSampler(23);
      const auto loader = MakeLoader(23, sampler, BatchesOf(4, workers));
      loader->StartEpoch(1);
      for (int64_t i = 0; i < taken; ++i) Take(*loader);
      const Indices epoch_2 = Flat(Epoch(*loader, 2));
      EXPECT_EQ(epoch_2, sampler->Indices());
      loader->StartEpoch(3);
      for (int64_t i = 0; i < taken; ++i) Take(*loader);
    }
  }
}

TEST(LoaderTest, ABatchOfTheLastEpochIsNotTakenForOneOfThis) {
  const auto numbers = std::make_shared<Numbers>(20);
  const auto sampler = MakeSampler(20);
  numbers->late_sample = sampler->Indices()[0];
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(4, 1));
  loader->StartEpoch();
  while (numbers->reads() == 0) std::this_thread::yield();
  // The worker holds epoch 0's first batch when epoch 1 begins.
  loader->StartEpoch(1);
  numbers->released.Notify();
  const Indices epoch_1 = Flat(TakeAll(*loader));
  EXPECT_EQ(epoch_1, sampler->Indices());
}

TEST(LoaderTest, NextBeforeAnEpochIsAnError) {
  const auto loader = MakeLoader(3, MakeSampler(3), BatchesOf(1));
  EXPECT_EQ(loader->num_batches(), 0);
  const absl::Status status = loader->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("StartEpoch"));
}

TEST(LoaderTest, PinnedMemoryIsOfNoEffectWithoutAGpu) {
  LoaderOptions options = BatchesOf(2);
  options.pin_memory = true;
  const auto loader = MakeLoader(3, MakeSampler(3, InOrder()), options);
  loader->StartEpoch();
  EXPECT_THAT(Take(*loader), ElementsAre(0, 1));
}

TEST(LoaderTest, RefusesWhatMakesNoSense) {
  const auto error = [](int64_t length, const LoaderOptions& options) {
    return std::string(Loader::Create(std::make_shared<Numbers>(3),
                                      MakeSampler(length), options)
                           .status()
                           .message());
  };
  EXPECT_THAT(error(4, BatchesOf(1)), AllOf(HasSubstr("4"), HasSubstr("3")));
  EXPECT_THAT(error(3, BatchesOf(0)), HasSubstr("batch size is 0"));
  EXPECT_THAT(error(3, BatchesOf(1, -1)), HasSubstr("--workers=-1"));
  EXPECT_THAT(error(3, BatchesOf(1, 1025)), HasSubstr("0 to 1024"));
  LoaderOptions no_prefetch = BatchesOf(1, 1);
  no_prefetch.prefetch_factor = 0;
  EXPECT_THAT(error(3, no_prefetch), HasSubstr("prefetch_factor is 0"));
}

TEST(BatchSizePerReplicaTest, DividesOrNamesBothNumbers) {
  EXPECT_EQ(*BatchSizePerReplica(256, 1), 256);
  EXPECT_EQ(*BatchSizePerReplica(256, 8), 32);
  EXPECT_EQ(*BatchSizePerReplica(7, 7), 1);
  const auto error = [](int64_t batch_size, int64_t degree) {
    return std::string(
        BatchSizePerReplica(batch_size, degree).status().message());
  };
  EXPECT_THAT(error(100, 7),
              AllOf(HasSubstr("--batch_size=100"), HasSubstr("data degree 7"),
                    HasSubstr("take 98 or 105")));
  EXPECT_THAT(error(3, 8), HasSubstr("take 8"));
  EXPECT_THAT(error(0, 2), HasSubstr("at least 1"));
  EXPECT_THAT(error(8, 0), HasSubstr("at least 1"));
}

}  // namespace
}  // namespace tandem
