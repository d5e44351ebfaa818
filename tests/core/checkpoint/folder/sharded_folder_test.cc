// Tensors that ranks had parts of: written by so many, and read by others.

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensor_shard.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/model/parameter_shard.h"
#include "core/testing/statuses.h"
#include "tests/core/testing/test_files.h"

namespace tandem::sharded_folder_test {
namespace {

using Sizes = std::vector<int64_t>;

// How a tensor is cut.
struct Cut {
  int64_t dim = 0;
  int64_t blocks = 1;
  c10::ScalarType dtype = at::kFloat;

  std::string name() const {
    return absl::StrCat("w", dim, ".", blocks, ".", c10::toString(dtype));
  }
  // No two elements are the same in any dtype's bits.
  at::Tensor whole() const {
    const Sizes sizes = dim == 0 ? Sizes{36, 5} : Sizes{5, 36};
    return at::arange(180).view(sizes).to(dtype);
  }
  TensorShard shard(int64_t degree, int64_t index) const {
    return *RankShard(name(), whole().sizes().vec(),
                      ParameterShard{"tensor", dim, blocks}, degree, index);
  }
};

std::vector<Cut> Cuts() {
  std::vector<Cut> cuts;
  for (const int64_t dim : {0, 1}) {
    for (const int64_t blocks : {1, 3}) {
      for (const auto dtype : {at::kFloat, at::kBFloat16}) {
        cuts.push_back({dim, blocks, dtype});
      }
    }
  }
  return cuts;
}

// State that three ranks share of each part, by memory, in another order than
// the rows': elements [begin, end) of 3.
constexpr int64_t kSharers = 3;

std::string StateName(const Cut& cut) {
  return absl::StrCat("optimizer.", cut.name(), ".exp_avg");
}

at::Tensor State(const Cut& cut) { return cut.whole().neg(); }

void AddPart(const Cut& cut, int64_t degree, int64_t index, StatePart* part) {
  const TensorShard shard = cut.shard(degree, index);
  const at::Tensor held = SelectShard(cut.whole(), shard).clone();
  part->tensors.emplace_back(cut.name(), held);
  if (degree > 1) {
    part->slices[cut.name()] = SliceOfShard(cut.whole().sizes().vec(), shard);
  }
}

// Run number `sharer` of the state, column by column.
void AddShare(const Cut& cut, int64_t degree, int64_t index, int64_t sharer,
              StatePart* part) {
  const TensorShard shard = cut.shard(degree, index);
  const at::Tensor memory =
      SelectShard(State(cut), shard).t().contiguous().view({-1});
  const int64_t begin = memory.numel() * sharer / kSharers;
  const int64_t end = memory.numel() * (sharer + 1) / kSharers;
  part->tensors.emplace_back(StateName(cut),
                             memory.narrow(0, begin, end - begin).clone());
  TensorSlice& slice = part->slices[StateName(cut)];
  slice = {cut.whole().sizes().vec(), {1, ShardSizes(shard)[0]}, begin};
  if (degree > 1) slice.shard = shard;
}

// What rank `index * kSharers + sharer` of `degree` x kSharers writes.
StatePart PartOf(const std::vector<Cut>& cuts, int64_t degree, int64_t index,
                 int64_t sharer) {
  StatePart part;
  for (const Cut& cut : cuts) {
    if (sharer == 0) AddPart(cut, degree, index, &part);
    AddShare(cut, degree, index, sharer, &part);
  }
  return part;
}

// Writes one part a rank, and the manifest; the folder's path.
absl::StatusOr<std::string> Write(const std::string& name,
                                  const std::vector<StatePart>& parts) {
  const std::string folder = NewTestFolder(name);
  std::vector<std::string> shards;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    shards.push_back(ShardName(static_cast<int>(rank)));
    TANDEM_RETURN_IF_ERROR(
        WriteShard(absl::StrCat(folder, "/", shards.back()), parts[rank]));
  }
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest, CollectShards(folder, shards));
  manifest.metadata = CheckpointMetadata(TrainingProgress());
  WriteBytes(absl::StrCat(folder, "/", kManifestFile),
             FormatManifest(manifest));
  return folder;
}

absl::StatusOr<std::string> WriteAll(const std::vector<Cut>& cuts,
                                     int64_t degree) {
  std::vector<StatePart> parts;
  for (int64_t index = 0; index < degree; ++index) {
    for (int64_t sharer = 0; sharer < kSharers; ++sharer) {
      parts.push_back(PartOf(cuts, degree, index, sharer));
    }
  }
  return Write(absl::StrCat("sharded", degree), parts);
}

const StoredTensor& Named(const StoredTensors& tensors,
                          const std::string& name) {
  for (const StoredTensor& each : tensors) {
    if (each.info.name == name) return each;
  }
  ADD_FAILURE() << name;
  return *tensors.begin();
}

// Read as one of `degree` ranks, by either way.
void ExpectShards(const StoredTensor& stored, const at::Tensor& whole,
                  const Cut& cut, int64_t degree) {
  for (int64_t index = 0; index < degree; ++index) {
    const TensorShard shard = cut.shard(degree, index);
    const StoredTensor part = StoredShard(stored, shard);
    const at::Tensor expected = SelectShard(whole, shard);
    EXPECT_EQ(part.info.sizes, expected.sizes().vec());
    ExpectOk(Verify(part));
    const auto read = part.read();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->equal(expected)) << part.info.name << " " << index;
    // Wherever it lies: row by row, column by column, between others.
    const at::Tensor rows = at::zeros(expected.sizes(), cut.dtype);
    const at::Tensor columns = rows.t().contiguous().t();
    const at::Tensor wide =
        at::zeros({expected.size(0), expected.size(1) + 2}, cut.dtype);
    for (const at::Tensor& target :
         {rows, columns, wide.narrow(1, 1, expected.size(1))}) {
      ExpectOk(ReadInto(part, target));
      EXPECT_TRUE(target.equal(expected)) << part.info.name << " " << index;
    }
    EXPECT_EQ(wide.select(1, 0).abs().sum().item<double>(), 0);
    EXPECT_EQ(wide.select(1, wide.size(1) - 1).abs().sum().item<double>(), 0);
    const at::Tensor doubles = at::zeros(expected.sizes(), at::kDouble);
    ExpectOk(ReadInto(part, doubles));
    EXPECT_TRUE(doubles.equal(expected.to(at::kDouble)));
  }
}

TEST(ShardedFolderTest, AnyDegreeReadsWhatAnyOtherHasWritten) {
  const std::vector<Cut> cuts = Cuts();
  NamedTensors whole;
  for (const Cut& cut : cuts) whole.emplace_back(cut.name(), cut.whole());
  for (const int64_t from : {1, 2, 3, 4}) {
    SCOPED_TRACE(from);
    const auto folder = WriteAll(cuts, from);
    ASSERT_TRUE(folder.ok()) << folder.status();
    const auto checkpoint = OpenCheckpointAt(*folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    NamedTensors model;
    for (const StoredTensor& each : checkpoint->model) {
      ExpectOk(Verify(each));
      const auto values = each.read();
      ASSERT_TRUE(values.ok()) << values.status();
      model.emplace_back(each.info.name, *values);
    }
    EXPECT_EQ(WeightsSha256(model), WeightsSha256(whole));
    for (const Cut& cut : cuts) {
      const StoredTensor& stored = Named(checkpoint->model, cut.name());
      const StoredTensor& state =
          Named(checkpoint->optimizer, OptimizerStateName(StateName(cut)));
      const auto values = state.read();
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_TRUE(values->equal(State(cut))) << cut.name();
      for (const int64_t to : {1, 2, 3, 6}) {
        ExpectShards(stored, cut.whole(), cut, to);
        ExpectShards(state, State(cut), cut, to);
      }
    }
  }
}

TEST(ShardedFolderTest, OneFileGivesShardsToo) {
  const std::string path =
      absl::StrCat(NewTestFolder("one_file"), "/model.safetensors");
  NamedTensors whole;
  for (const Cut& cut : Cuts()) whole.emplace_back(cut.name(), cut.whole());
  ExpectOk(
      WriteSafetensors(path, whole, CheckpointMetadata(TrainingProgress())));
  const auto checkpoint = OpenCheckpointAt(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (const Cut& cut : Cuts()) {
    for (const int64_t to : {1, 2, 3, 6}) {
      ExpectShards(Named(checkpoint->model, cut.name()), cut.whole(), cut, to);
    }
  }
}

// What is larger than the piece of a file that is held at a time.
TEST(ShardedFolderTest, LargeTensorsAreReadPieceByPiece) {
  const int64_t columns = 3000000;
  const at::Tensor whole = at::arange(3 * columns).view({3, columns});
  StatePart part;
  part.tensors = {{"w", whole}};
  const auto folder = Write("large", {part});
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto checkpoint = OpenCheckpointAt(*folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (const TensorShard& shard :
       std::vector<TensorShard>{{{{1, 1}}, {{0, columns}}},
                                {{{0, 3}}, {{7, 2}, {columns - 11, 11}}}}) {
    const auto read = StoredShard(*checkpoint->model.begin(), shard).read();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->equal(SelectShard(whole, shard)));
  }
}

TEST(ShardedFolderTest, AShardOfAShardIsRead) {
  const Cut cut = {1, 3, at::kFloat};
  const auto folder = WriteAll({cut}, 4);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto checkpoint = OpenCheckpointAt(*folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const TensorShard outer = cut.shard(2, 1);
  const TensorShard inner = {{{1, 3}}, {{4, 5}}};
  for (const StoredTensor& stored :
       {*checkpoint->model.begin(),
        *StoredTensors({{"w", cut.whole()}}).begin()}) {
    const StoredTensor part = StoredShard(StoredShard(stored, outer), inner);
    const at::Tensor expected =
        SelectShard(SelectShard(cut.whole(), outer), inner);
    EXPECT_TRUE(part.read()->equal(expected));
    const at::Tensor target = at::zeros(expected.sizes());
    ExpectOk(ReadInto(part, target));
    EXPECT_TRUE(target.equal(expected));
    ExpectOk(Verify(part));
  }
}

TEST(ShardedFolderTest, NothingAndNumbersAreWritten) {
  StatePart first;
  first.tensors = {{"columns", at::empty({0, 2})},
                   {"rows", at::empty({0, 3})},
                   {"step", at::scalar_tensor(5.)}};
  StatePart second = first;
  second.tensors.pop_back();
  first.slices = {{"columns", SliceOfShard({0, 4}, {{{0, 0}}, {{0, 2}}})},
                  {"rows", SliceOfShard({0, 3}, {{{0, 0}}, {{0, 3}}})}};
  second.slices = {{"columns", SliceOfShard({0, 4}, {{{0, 0}}, {{2, 2}}})},
                   {"rows", SliceOfShard({0, 3}, {{{0, 0}}, {{0, 3}}})}};
  const auto folder = Write("nothing", {first, second});
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto checkpoint = OpenCheckpointAt(*folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(Named(checkpoint->model, "columns").read()->sizes(),
            at::IntArrayRef({0, 4}));
  EXPECT_EQ(Named(checkpoint->model, "rows").read()->sizes(),
            at::IntArrayRef({0, 3}));
  EXPECT_EQ(Named(checkpoint->model, "step").read()->item<double>(), 5);
  EXPECT_EQ(
      StoredShard(Named(checkpoint->model, "columns"), {{{0, 0}}, {{1, 2}}})
          .read()
          ->sizes(),
      at::IntArrayRef({0, 2}));
}

// Ranks 0 and 1 of a folder that two have written.
class UnreadShardTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<StatePart> parts;
    for (int64_t index : {0, 1}) {
      AddPart(cut_, 2, index, &parts.emplace_back());
    }
    const auto folder = Write("unread", parts);
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_ = *folder;
  }
  std::string Shard(int rank) {
    return absl::StrCat(folder_, "/", ShardName(rank));
  }

  const Cut cut_ = {1, 3, at::kFloat};
  std::string folder_;
};

TEST_F(UnreadShardTest, WhatOthersReadStaysUnread) {
  std::filesystem::remove(Shard(1));
  const auto checkpoint = OpenCheckpointAt(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const StoredTensor& stored = *checkpoint->model.begin();
  const StoredTensor first = StoredShard(stored, cut_.shard(2, 0));
  ExpectOk(Verify(first));
  EXPECT_TRUE(first.read()->equal(SelectShard(cut_.whole(), cut_.shard(2, 0))));
  for (const absl::Status& missing :
       {Verify(stored), stored.read().status(),
        Verify(StoredShard(stored, cut_.shard(2, 1))),
        StoredShard(stored, cut_.shard(3, 1)).read().status()}) {
    EXPECT_THAT(missing, StatusIs(absl::StatusCode::kDataLoss, Shard(1),
                                  cut_.name(), "it is not there"));
  }
}

TEST_F(UnreadShardTest, NothingIsWrittenWhereAnyPartIsDamaged) {
  {
    std::fstream file(Shard(1),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  const auto checkpoint = OpenCheckpointAt(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const StoredTensor& stored = *checkpoint->model.begin();
  const at::Tensor target = at::zeros({5, 36});
  EXPECT_THAT(ReadInto(stored, target),
              StatusIs(absl::StatusCode::kDataLoss, cut_.name()));
  const at::Tensor third = at::zeros({5, 12});
  EXPECT_THAT(ReadInto(StoredShard(stored, cut_.shard(3, 1)), third),
              StatusIs(absl::StatusCode::kDataLoss, cut_.name()));
  EXPECT_EQ(target.abs().sum().item<double>(), 0);
  EXPECT_EQ(third.abs().sum().item<double>(), 0);
  ExpectOk(ReadInto(StoredShard(stored, cut_.shard(6, 2)), at::zeros({5, 6})));
}

}  // namespace
}  // namespace tandem::sharded_folder_test
