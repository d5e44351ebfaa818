// Where a job stands and how it goes on: loader_resume_test.cc.

#include "datasets/loader.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/numbers.h"

namespace tandem::loader_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LoaderTest, TheSequenceDoesNotDependOnTheWorkers) {
  for (int64_t length : {0, 1, 10, 101}) {
    for (bool drop_last : {false, true}) {
      for (int64_t workers : {0, 1, 2, 5}) {
        const auto sampler = MakeSampler(length);
        LoaderOptions options = BatchOptions(10, workers);
        options.drop_last = drop_last;
        const auto loader =
            MakeLoader(std::make_shared<Numbers>(length), sampler, options);
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

// The last batch of all replicas may leave some of them without samples.
TEST(LoaderTest, ReplicasOfSlicesHaveAsManyBatches) {
  for (int64_t length : {1, 11, 12, 13, 23, 24}) {
    for (bool drop_last : {false, true}) {
      for (int64_t workers : {0, 2}) {
        std::vector<Indices> batches;
        for (int64_t rank = 0; rank < 3; ++rank) {
          DistributedSamplerOptions sampling = InOrder();
          sampling.num_replicas = 3;
          sampling.rank = rank;
          sampling.slices_of = 12;
          sampling.even = false;
          LoaderOptions options = BatchOptions(4, workers);
          options.drop_last = drop_last;
          const auto loader =
              MakeLoader(std::make_shared<Numbers>(length),
                         MakeSampler(length, sampling), options);
          loader->StartEpoch();
          const int64_t count = drop_last ? length / 12 : (length + 11) / 12;
          EXPECT_EQ(loader->num_batches(), count);
          batches.resize(static_cast<size_t>(count));
          for (Indices& batch : batches) {
            const auto next = loader->Next();
            ASSERT_TRUE(next.ok()) << next.status();
            ASSERT_TRUE(next->has_value());
            EXPECT_EQ((*next)->inputs.defined(), (*next)->size > 0);
            for (int64_t i = 0; i < (*next)->size; ++i) {
              batch.push_back((*next)->targets[i].item<int64_t>());
            }
          }
          const auto end = loader->Next();
          ASSERT_TRUE(end.ok()) << end.status();
          EXPECT_FALSE(end->has_value());
          EXPECT_EQ(loader->state().position, length);
        }
        EXPECT_EQ(Flat(batches), Range(drop_last ? length / 12 * 12 : length));
      }
    }
  }
}

TEST(LoaderTest, WhatAnotherOwnerDoesToTheSamplerReachesTheLoader) {
  for (int64_t workers : {0, 3}) {
    const auto sampler = MakeSampler(30);
    const auto loader = MakeLoader(std::make_shared<Numbers>(30), sampler,
                                   BatchOptions(4, workers));
    loader->StartEpoch();
    const std::vector<Indices> epoch_0 = TakeAll(*loader);
    sampler->set_epoch(1);
    loader->StartEpoch();
    const std::vector<Indices> epoch_1 = TakeAll(*loader);
    EXPECT_NE(epoch_0, epoch_1);
    EXPECT_EQ(Flat(epoch_1), sampler->Indices());
  }
}

TEST(LoaderTest, AnErrorNamesTheBatchAndStaysUntilTheNextEpoch) {
  for (int64_t workers : {0, 1, 3}) {
    const auto numbers = std::make_shared<Numbers>(20);
    numbers->bad_sample = 9;
    const auto loader = MakeLoader(numbers, MakeSampler(20, InOrder()),
                                   BatchOptions(4, workers));
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
    const auto loader = MakeLoader(numbers, MakeSampler(20, InOrder()),
                                   BatchOptions(4, workers));
    loader->StartEpoch();
    const absl::Status status = loader->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(status.message(),
              "cannot read batch 0 of epoch 0, first sample 0: boom");
  }
}

TEST(LoaderTest, WhatLibTorchRefusesKeepsItsCode) {
  const auto numbers = std::make_shared<Numbers>(20);
  numbers->refusing_sample = 5;
  const auto loader =
      MakeLoader(numbers, MakeSampler(20, InOrder()), BatchOptions(4, 0));
  loader->StartEpoch();
  ASSERT_TRUE(loader->Next().ok());
  const absl::Status status = loader->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "cannot read batch 1 of epoch 0, first sample 4: no such sample");
}

TEST(LoaderTest, ALateWorkerIsNamedAndCanBeWaitedForAgain) {
  const auto numbers = std::make_shared<Numbers>(20);
  numbers->late_sample = 5;
  LoaderOptions options = BatchOptions(4, 2);
  options.timeout = absl::Milliseconds(20);
  const auto loader = MakeLoader(numbers, MakeSampler(20, InOrder()), options);
  loader->StartEpoch();
  absl::StatusOr<std::optional<Batch>> batch = loader->Next();
  while (absl::IsDeadlineExceeded(batch.status())) batch = loader->Next();
  ASSERT_TRUE(batch.ok()) << batch.status();
  const absl::Status status = loader->Next().status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "batch 1 of epoch 0, first sample 4", "within 20ms"));
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
      const auto loader = MakeLoader(std::make_shared<Numbers>(23), sampler,
                                     BatchOptions(4, workers));
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
  const auto loader = MakeLoader(numbers, sampler, BatchOptions(4, 1));
  loader->StartEpoch();
  while (numbers->reads() == 0) std::this_thread::yield();
  // The worker holds epoch 0's first batch when epoch 1 begins.
  loader->StartEpoch(1);
  numbers->released.Notify();
  const Indices epoch_1 = Flat(TakeAll(*loader));
  EXPECT_EQ(epoch_1, sampler->Indices());
}

TEST(LoaderTest, NextBeforeAnEpochIsAnError) {
  const auto loader =
      MakeLoader(std::make_shared<Numbers>(3), MakeSampler(3), BatchOptions(1));
  EXPECT_EQ(loader->num_batches(), 0);
  const absl::Status status = loader->Next().status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition, "StartEpoch"));
}

TEST(LoaderTest, PinnedMemoryIsOfNoEffectWithoutAGpu) {
  LoaderOptions options = BatchOptions(2);
  options.pin_memory = true;
  const auto loader = MakeLoader(std::make_shared<Numbers>(3),
                                 MakeSampler(3, InOrder()), options);
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
  EXPECT_THAT(error(4, BatchOptions(1)), AllOf(HasSubstr("4"), HasSubstr("3")));
  EXPECT_THAT(error(3, BatchOptions(0)), HasSubstr("batch size is 0"));
  EXPECT_THAT(error(3, BatchOptions(1, -1)), HasSubstr("workers is -1"));
  EXPECT_THAT(error(3, BatchOptions(1, 1025)), HasSubstr("0 to 1024"));
  LoaderOptions no_prefetch = BatchOptions(1, 1);
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
              AllOf(HasSubstr("a global batch of 100"), HasSubstr("7 replicas"),
                    HasSubstr("take 98 or 105")));
  EXPECT_THAT(error(3, 8), HasSubstr("take 8"));
  EXPECT_THAT(error(0, 2), HasSubstr("at least 1"));
  EXPECT_THAT(error(8, 0), HasSubstr("at least 1"));
}

// What a rank of a pipeline loads (LoaderOptions::parts):
// sizes of an epoch's batches, whose tensors are those of `parts` alone.
std::vector<int64_t> BatchSizes(Loader& loader, const BatchParts& parts) {
  std::vector<int64_t> sizes;
  loader.StartEpoch();
  for (;;) {
    const absl::StatusOr<std::optional<Batch>> batch = loader.Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || !batch->has_value()) return sizes;
    EXPECT_EQ((*batch)->inputs.defined(), parts.inputs);
    EXPECT_EQ((*batch)->targets.defined(), parts.targets);
    sizes.push_back((*batch)->size);
  }
}

TEST(LoaderPartsTest, ReadsWhatIsWantedAlone) {
  for (const bool inputs : {false, true}) {
    for (const bool targets : {false, true}) {
      for (const int64_t workers : {0, 2}) {
        const auto numbers = std::make_shared<Numbers>(11);
        LoaderOptions options = BatchOptions(4, workers);
        options.parts = {inputs, targets};
        const auto loader = MakeLoader(numbers, MakeSampler(11), options);
        EXPECT_THAT(BatchSizes(*loader, options.parts), ElementsAre(4, 4, 3));
        EXPECT_EQ(loader->state(), (SamplerState{0, 11}));
        EXPECT_EQ(numbers->inputs_read(), inputs ? 11 : 0);
        EXPECT_EQ(numbers->targets_read(), targets ? 11 : 0);
        EXPECT_EQ(numbers->reads(), inputs || targets ? 3 : 0);
      }
    }
  }
}

// Ranks of one replica see the same samples.
TEST(LoaderPartsTest, PartsAreThoseOfTheWholeBatch) {
  LoaderOptions options = BatchOptions(4);
  options.parts = {/*inputs=*/false, /*targets=*/true};
  const auto numbers = std::make_shared<Numbers>(10);
  const auto last = MakeLoader(numbers, MakeSampler(10), options);
  const auto whole = MakeLoader(numbers, MakeSampler(10), BatchOptions(4));
  last->StartEpoch(3);
  const std::vector<Indices> expected = Epoch(*whole, 3);
  for (const Indices& samples : expected) {
    const absl::StatusOr<std::optional<Batch>> batch = last->Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    const int64_t* targets = (*batch)->targets.const_data_ptr<int64_t>();
    EXPECT_EQ(Indices(targets, targets + (*batch)->size), samples);
  }
}

// By which ranks of a pipeline see that they have the same samples.
TEST(LoaderPartsTest, ABatchSaysWhichSamplesItHas) {
  const auto identities = [](int64_t rank, const BatchParts& parts) {
    DistributedSamplerOptions sampling;
    sampling.num_replicas = 2;
    sampling.rank = rank;
    LoaderOptions options = BatchOptions(4);
    options.parts = parts;
    const auto loader = MakeLoader(std::make_shared<Numbers>(16),
                                   MakeSampler(16, sampling), options);
    loader->StartEpoch(0);
    std::vector<uint64_t> all;
    for (int i = 0; i < 2; ++i) all.push_back(loader->Next().value()->identity);
    return all;
  };
  const std::vector<uint64_t> first = identities(0, {true, false});
  EXPECT_NE(first[0], 0u);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(identities(0, {false, true}), first);
  EXPECT_EQ(identities(0, {false, false}), first);
  EXPECT_NE(identities(1, {true, true})[0], first[0]);
}

TEST(LoaderPartsTest, BatchesAreTheSamplersSlices) {
  DistributedSamplerOptions slicing = InOrder();
  slicing.num_replicas = 2;
  slicing.rank = 1;
  slicing.even = false;
  slicing.slices_of = 6;
  const auto numbers = std::make_shared<Numbers>(17);
  const auto sampler = MakeSampler(17, slicing);
  const auto loader = MakeLoader(numbers, sampler, BatchOptions(3));
  EXPECT_THAT(Epoch(*loader, 0),
              ElementsAre(ElementsAre(3, 4, 5), ElementsAre(9, 10, 11),
                          ElementsAre(15, 16)));
  loader->StartEpoch(1);
  Take(*loader);
  EXPECT_EQ(loader->state(), (SamplerState{1, 6}));
  EXPECT_EQ(
      Loader::Create(numbers, sampler, BatchOptions(4)).status().message(),
      "the sampler slices global batches of 6 samples, but 2 replicas load 4 "
      "each");
}

}  // namespace
}  // namespace tandem::loader_test
