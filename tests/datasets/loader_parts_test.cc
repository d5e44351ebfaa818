// What a rank of a pipeline loads (LoaderOptions::parts), and in which slices.

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datasets/loader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/numbers.h"

namespace tandem::loader_parts_test {
namespace {

using ::testing::ElementsAre;

// Sizes of an epoch's batches, whose tensors are those of `parts` alone.
std::vector<int64_t> SizesOf(Loader& loader, const BatchParts& parts) {
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
        LoaderOptions options = BatchesOf(4, workers);
        options.parts = {inputs, targets};
        const auto loader = MakeLoader(numbers, MakeSampler(11), options);
        EXPECT_THAT(SizesOf(*loader, options.parts), ElementsAre(4, 4, 3));
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
  LoaderOptions options = BatchesOf(4);
  options.parts = {/*inputs=*/false, /*targets=*/true};
  const auto numbers = std::make_shared<Numbers>(10);
  const auto last = MakeLoader(numbers, MakeSampler(10), options);
  const auto whole = MakeLoader(numbers, MakeSampler(10), BatchesOf(4));
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
    LoaderOptions options = BatchesOf(4);
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
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(3));
  EXPECT_THAT(Epoch(*loader, 0),
              ElementsAre(ElementsAre(3, 4, 5), ElementsAre(9, 10, 11),
                          ElementsAre(15, 16)));
  loader->StartEpoch(1);
  Take(*loader);
  EXPECT_EQ(loader->state(), (SamplerState{1, 6}));
  EXPECT_EQ(
      Loader::Create(numbers, sampler, BatchesOf(4)).status().message(),
      "the sampler slices global batches of 6 samples, but 2 replicas load 4 "
      "each");
}

}  // namespace
}  // namespace tandem::loader_parts_test
