#include "core/checkpoint/folder/save.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/digest/sha256.h"
#include "core/instrument/fault_point.h"
#include "core/store/gather.h"
#include "gtest/gtest.h"
#include "tests/core/testing/log_lines.h"
#include "tests/core/testing/on_threads.h"
#include "tests/core/testing/test_files.h"

namespace tandem::save_test {
namespace {

namespace fs = std::filesystem;

// What a whole job has. `salt` makes other values of the same shapes.
NamedTensors WholeState(double salt) {
  const at::Tensor shared = at::arange(salt, salt + 84)
                                .view({7, 3, 2, 2})
                                .contiguous(at::MemoryFormat::ChannelsLast);
  return {{"conv.weight", shared.neg()},
          {"fc.weight", at::arange(salt, salt + 35).view({5, 7})},
          {"nothing", at::empty({0, 3})},
          {"bn.num_batches_tracked", at::scalar_tensor(salt, at::kLong)},
          {"optimizer.conv.weight.exp_avg", shared},
          {"optimizer.nothing.exp_avg", at::empty({0, 3})},
          {"optimizer.conv.weight.step", at::scalar_tensor(3.)}};
}

constexpr char kShared[] = "optimizer.conv.weight.exp_avg";

// Tensors in turn, the shared one in pieces of 17 elements and what is left.
std::vector<StatePart> Deal(const NamedTensors& whole, int ranks) {
  std::vector<StatePart> parts(static_cast<size_t>(ranks));
  size_t next = 0;
  for (const auto& [name, tensor] : whole) {
    if (name != kShared) {
      parts[next++ % parts.size()].tensors.emplace_back(name, tensor);
      continue;
    }
    const at::Tensor flat =
        tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
    int64_t begin = 0;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const int64_t end = rank + 1 == parts.size()
                              ? flat.numel()
                              : std::min<int64_t>(begin + 17, flat.numel());
      if (begin == end) continue;
      parts[rank].tensors.emplace_back(name,
                                       flat.narrow(0, begin, end - begin));
      parts[rank].slices[name] = {tensor.sizes().vec(), tensor.strides().vec(),
                                  begin};
      begin = end;
    }
  }
  return parts;
}

SafetensorsMetadata Metadata() {
  TrainingProgress progress;
  progress.step = 12;
  progress.model = "mlp_small";
  return CheckpointMetadata(progress);
}

// Each rank's result. `path`: where it is to be; that it has, where ranks
// agree.
std::vector<absl::Status> Save(
    const std::string& path, const std::vector<StatePart>& parts,
    const std::set<std::string>& may_be_infinite = {},
    std::string* saved = nullptr) {
  const StorePtr store = NewHashStore(std::chrono::minutes(1));
  std::vector<absl::Status> results(parts.size());
  std::vector<std::string> paths(parts.size());
  OnThreads(static_cast<int>(parts.size()), [&](size_t rank) {
    int round = 0;
    FolderSave save;
    save.path = path;
    save.rank = static_cast<int>(rank);
    save.mesh = {{"data", static_cast<int64_t>(parts.size())}, {"pipe", 1}};
    save.metadata = Metadata();
    save.may_be_infinite = may_be_infinite;
    save.gather = [&](const std::string& mine)
        -> absl::StatusOr<std::vector<std::string>> {
      TANDEM_ASSIGN_OR_RETURN(
          const GatheredTexts all,
          GatherAtStore(*store, absl::StrCat(path, ++round),
                        static_cast<int>(rank), static_cast<int>(parts.size()),
                        mine, std::chrono::minutes(1)));
      std::vector<std::string> texts;
      for (const auto& each : all) texts.push_back(each.value_or(""));
      return texts;
    };
    const auto path_of_rank = SaveFolder(save, parts[rank]);
    results[rank] = path_of_rank.status();
    paths[rank] = path_of_rank.value_or("");
  });
  for (const std::string& each : paths) EXPECT_EQ(each, paths[0]);
  if (saved != nullptr) *saved = paths[0];
  return results;
}

std::string NewPath(const std::string& name) {
  return NewTestFolder(name) + "/step-000000012";
}

// Folders beside that one, with it.
int CountBeside(const std::string& path) {
  return static_cast<int>(
      std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}));
}

// What a job is told before anything changes, or all that it gets.
absl::StatusOr<NamedTensors> Load(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint stored,
                          OpenCheckpointAt(path));
  NamedTensors tensors;
  for (const StoredTensors* kind : {&stored.model, &stored.optimizer}) {
    for (const StoredTensor& each : *kind) {
      TANDEM_RETURN_IF_ERROR(Verify(each));
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, each.read());
      const bool is_model = kind == &stored.model;
      tensors.emplace_back(
          absl::StrCat(is_model ? "" : "optimizer.", each.info.name), values);
    }
  }
  return tensors;
}

TEST(SaveFolderTest, AnyNumberOfRanksSavesTheSameState) {
  const NamedTensors whole = WholeState(2);
  for (const int ranks : {1, 2, 3, 7, 11}) {
    const std::string path = NewPath(absl::StrCat("ranks", ranks));
    for (const absl::Status& each : Save(path, Deal(whole, ranks))) {
      ASSERT_TRUE(each.ok()) << each;
    }
    const auto loaded = Load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(WeightsSha256(*loaded), WeightsSha256(whole)) << ranks;
    EXPECT_EQ(OpenCheckpointAt(path)->progress.step, 12);
    EXPECT_EQ(ReadManifest(path)->mesh.at("data"), ranks);
    EXPECT_EQ(CountBeside(path), 1);
    // A rank without any tensor writes no file.
    const auto files = static_cast<size_t>(
        std::distance(fs::directory_iterator(path), fs::directory_iterator()));
    EXPECT_EQ(files, ReadManifest(path)->files.size() + 1);
  }
}

// What has no shards is written as it was before there were any: hashes of the
// files of that program.
TEST(SaveFolderTest, FilesWithoutShardsAreTheSameBytes) {
  const std::map<std::string, std::string> one = {
      {"manifest.json",
       "335027230b5c1ac03931e29a7517b83971c65a87c6a4b820884089df8cf75fcc"},
      {"rank-00000.safetensors",
       "6ecfbce1b8e15aa8f1466669391306a2af0202deb428ed9156d506434df5f144"}};
  const std::map<std::string, std::string> three = {
      {"manifest.json",
       "2ca836bb20bf98665ebde8f1df2ec8344b55d6b8163eb010fa366ee30b20e0f2"},
      {"rank-00000.safetensors",
       "23b67866457848c14ca6fbe66437edf358631dbf353597dcdeefe71c4d2202d0"},
      {"rank-00001.safetensors",
       "c717db68f8155b52fed84988eae79e0172fa0de41be4fa6faddb6285eeb85091"},
      {"rank-00002.safetensors",
       "88d0ae31c63fc7cce72dc4ed4205893227374ebd72f85feabaf6b9ec1caf1d17"}};
  for (const auto& [ranks, hashes] :
       {std::make_pair(1, one), std::make_pair(3, three)}) {
    const std::string path = NewPath(absl::StrCat("bytes", ranks));
    ASSERT_TRUE(Save(path, Deal(WholeState(2), ranks))[0].ok());
    for (const auto& [name, expected] : hashes) {
      Sha256 hash;
      hash.Update(ReadBytes(path + "/" + name));
      EXPECT_EQ(hash.HexDigest(), expected) << ranks << " " << name;
    }
  }
}

TEST(SaveFolderTest, ASecondSaveOfAStepStandsBesideTheFirst) {
  const std::string path = NewPath("again");
  ASSERT_TRUE(Save(path, Deal(WholeState(1), 2))[0].ok());
  std::string saved;
  ASSERT_TRUE(Save(path, Deal(WholeState(5), 3), {}, &saved)[0].ok());
  EXPECT_EQ(saved, path + ".1");
  EXPECT_EQ(WeightsSha256(*Load(path)), WeightsSha256(WholeState(1)));
  EXPECT_EQ(WeightsSha256(*Load(saved)), WeightsSha256(WholeState(5)));
  EXPECT_EQ(CountBeside(path), 2);
}

// On whichever rank it lies, in every dtype that has such values.
TEST(SaveFolderTest, WhatIsNotFiniteIsNotSaved) {
  const std::string path = NewPath("infinite");
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      std::vector<StatePart> parts = Deal(WholeState(1), 3);
      // Behind the first piece that checksums are made of.
      at::Tensor broken = at::ones({300000}, dtype);
      broken[299999] = value;
      parts[1].tensors.emplace_back("optimizer.fc.weight.exp_avg", broken);
      for (const absl::Status& each : Save(path, parts)) {
        EXPECT_EQ(each.code(), absl::StatusCode::kOutOfRange) << each;
        EXPECT_TRUE(absl::StrContains(each.message(),
                                      "optimizer.fc.weight.exp_avg has "))
            << each;
        EXPECT_TRUE(absl::StrContains(each.message(), "[299999]")) << each;
      }
      EXPECT_EQ(CountBeside(path), 0);
    }
  }
  // A mask may have such values, and the greatest numbers are none.
  std::vector<StatePart> parts = Deal(WholeState(1), 3);
  parts[1].tensors.emplace_back("mask", at::full({5}, -HUGE_VAL));
  parts[1].tensors.emplace_back(
      "greatest", at::full({5}, std::numeric_limits<float>::max()));
  for (const absl::Status& each : Save(path, parts, {"mask"})) {
    EXPECT_TRUE(each.ok()) << each;
  }
}

// At each point of a save, on either rank: all are told, and the checkpoint
// that was there stays.
TEST(SaveFolderTest, AFailureAnywhereLeavesWhatWasThere) {
  const std::string path = NewPath("failures");
  ASSERT_TRUE(Save(path, Deal(WholeState(1), 2))[0].ok());
  for (const char* point : {"write_tensor:1", "before_commit",
                            "checkpoint_manifest", "folder_rename"}) {
    Fault fault;
    fault.point = point;
    ArmFaults({fault});
    for (const absl::Status& each : Save(path, Deal(WholeState(5), 2))) {
      EXPECT_EQ(each.code(), absl::StatusCode::kInternal) << point;
      EXPECT_TRUE(absl::StrContains(each.message(), point)) << each;
    }
    ArmFaults({});
    EXPECT_EQ(WeightsSha256(*Load(path)), WeightsSha256(WholeState(1)));
    EXPECT_EQ(CountBeside(path), 1) << point;
  }
}

// What stands under its name can be read, however its directory's sync ends.
TEST(SaveFolderTest, WhatFailsBehindTheRenameIsAWarning) {
  const std::string path = NewPath("unsynced");
  ArmFaults(*ParseFaults("point=sync_new_name,action=fail"));
  LogLines log;
  for (const absl::Status& each : Save(path, Deal(WholeState(5), 2))) {
    EXPECT_TRUE(each.ok()) << each;
  }
  ArmFaults({});
  EXPECT_EQ(WeightsSha256(*Load(path)), WeightsSha256(WholeState(5)));
  EXPECT_TRUE(log.Await(absl::StrCat(
      path, " is complete, but may not outlive a crash of the machine")));
  // Beside it of two shards and the manifest; the fault says so as often.
  EXPECT_EQ(log.lines().size(), 2 * 4u);
}

TEST(SaveFolderTest, StateThatIsNotWholeIsRefusedByName) {
  const std::string path = NewPath("holes");
  std::vector<StatePart> parts = Deal(WholeState(1), 3);
  for (StatePart& part : parts) {
    if (part.slices.at(kShared).begin != 17) continue;
    part.tensors.erase(
        std::find_if(part.tensors.begin(), part.tensors.end(),
                     [](const auto& each) { return each.first == kShared; }));
  }
  const std::vector<absl::Status> hole = Save(path, parts);
  EXPECT_TRUE(absl::StrContains(hole[2].message(), kShared)) << hole[2];
  parts = Deal(WholeState(1), 2);
  parts[1].tensors.emplace_back("fc.weight", at::arange(35.).view({5, 7}));
  parts[0].tensors.emplace_back("fc.weight", at::arange(35.).view({5, 7}));
  for (const absl::Status& each : Save(path, parts)) {
    EXPECT_TRUE(absl::StrContains(each.message(), "fc.weight")) << each;
  }
  EXPECT_FALSE(fs::exists(path));
}

// A checkpoint of three ranks, and one of other values beside it.
class DamagedFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = NewPath("damaged");
    other_ = NewPath("other");
    ASSERT_TRUE(Save(path_, Deal(WholeState(1), 3))[0].ok());
    ASSERT_TRUE(Save(other_, Deal(WholeState(9), 3))[0].ok());
    for (const auto& entry : fs::directory_iterator(path_)) {
      names_.push_back(entry.path().filename());
    }
    std::sort(names_.begin(), names_.end());
    ASSERT_EQ(names_.size(), 4u);
    for (const std::string& name : names_) {
      whole_.push_back(ReadBytes(path_ + "/" + name));
    }
  }

  // Refused, with the file and a tensor of it named, or the same state.
  bool IsSeen(size_t file, const std::string& what) {
    const auto loaded = Load(path_);
    if (loaded.ok()) {
      EXPECT_EQ(WeightsSha256(*loaded), WeightsSha256(WholeState(1))) << what;
      return false;
    }
    const std::string message(loaded.status().message());
    EXPECT_TRUE(absl::StrContains(message, path_ + "/" + names_[file]))
        << what << ": " << message;
    bool names_tensor = names_[file] == kManifestFile;
    for (const auto& each : WholeState(1)) {
      names_tensor = names_tensor || absl::StrContains(message, each.first);
    }
    EXPECT_TRUE(names_tensor) << what << ": " << message;
    return true;
  }

  bool IsSeenWith(size_t file, const std::string& bytes,
                  const std::string& what) {
    const std::string path = path_ + "/" + names_[file];
    WriteBytes(path, bytes);
    const bool seen = IsSeen(file, absl::StrCat(what, " in ", path));
    WriteBytes(path, whole_[file]);
    return seen;
  }

  std::string path_;
  std::string other_;
  std::vector<std::string> names_;
  std::vector<std::string> whole_;  // contents, by name
};

TEST_F(DamagedFolderTest, FiveHundredAccidentsAreSeen) {
  std::mt19937 random(3);
  int seen = 0;
  for (int i = 0; i < 500; ++i) {
    const size_t file = random() % names_.size();
    const std::string& whole = whole_[file];
    const size_t at = random() % whole.size();
    std::string bytes = whole;
    switch (i % 5) {
      case 0:
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, 1, 'x');
        break;
      default:
        std::fill(bytes.begin() + static_cast<int64_t>(at), bytes.end(), '\0');
    }
    if (bytes == whole) bytes.pop_back();
    seen += IsSeenWith(file, bytes, absl::StrCat("accident ", i));
  }
  EXPECT_EQ(seen, 500);
  std::cout << "cells: " << seen << " accidents\n";
}

TEST_F(DamagedFolderTest, ExchangedAndMissingFilesAreSeen) {
  for (size_t a = 0; a < names_.size(); ++a) {
    // With another's manifest, it is the other files that are wrong.
    const size_t wrong = names_[a] == kManifestFile ? a + 1 : a;
    WriteBytes(path_ + "/" + names_[a], ReadBytes(other_ + "/" + names_[a]));
    EXPECT_TRUE(IsSeen(wrong, "another checkpoint's file")) << names_[a];
    WriteBytes(path_ + "/" + names_[a], whole_[a]);
    for (size_t b = a + 1; b < names_.size(); ++b) {
      EXPECT_TRUE(IsSeenWith(a, whole_[b], "another rank's file"));
    }
    fs::remove(path_ + "/" + names_[a]);
    EXPECT_FALSE(Load(path_).ok());
    WriteBytes(path_ + "/" + names_[a], whole_[a]);
  }
  EXPECT_TRUE(Load(path_).ok());
}

}  // namespace
}  // namespace tandem::save_test
