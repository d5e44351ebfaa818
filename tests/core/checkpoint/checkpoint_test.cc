#include "core/checkpoint/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/safetensors.h"
#include "gtest/gtest.h"
#include "tests/core/testing/test_files.h"

namespace tandem::checkpoint_test {
namespace {

NamedTensors Model() {
  return {{"fc.weight", at::arange(6.).view({2, 3})},
          {"bn.num_batches_tracked", at::scalar_tensor(3, at::kLong)}};
}

NamedTensors OptimizerState() {
  return {{"fc.weight.momentum_buffer", at::ones({2, 3})}};
}

TrainingProgress Progress() {
  TrainingProgress progress;
  progress.step = 7;
  progress.epoch = 2;
  progress.sampler_position = 448;
  progress.seed = std::numeric_limits<uint64_t>::max();
  progress.world_size = 3;
  progress.model = "mlp_small";
  progress.model_config = "{\n  \"model_type\": \"gpt2\"\n}\n";
  progress.generation_config = "{\"eos_token_id\": [1, 2]}";
  progress.vocabulary = 50257;
  progress.options = {{"classes", "10"}, {"empty", ""}};
  progress.grad_scaler = {{"scale", 0.1F}, {"_growth_tracker", 1e15 + 1}};
  return progress;
}

absl::Status Save(const std::string& path) {
  const auto tensors = CheckpointTensors(Model(), OptimizerState());
  if (!tensors.ok()) return tensors.status();
  return WriteSafetensors(path, *tensors, CheckpointMetadata(Progress()));
}

NamedTensors ReadAll(const StoredTensors& stored) {
  NamedTensors tensors;
  for (const StoredTensor& each : stored) {
    EXPECT_TRUE(Verify(each).ok());
    const auto values = each.read();
    EXPECT_TRUE(values.ok()) << values.status();
    tensors.emplace_back(each.info.name, *values);
  }
  return tensors;
}

TEST(Checkpoint, ComesBackAsItWasSaved) {
  ASSERT_TRUE(Save(TestPath("c")).ok());
  const auto loaded = OpenCheckpoint(TestPath("c"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(WeightsSha256(ReadAll(loaded->model)), WeightsSha256(Model()));
  EXPECT_EQ(WeightsSha256(ReadAll(loaded->optimizer)),
            WeightsSha256(OptimizerState()));
  EXPECT_EQ(loaded->progress.step, 7);
  EXPECT_EQ(loaded->progress.epoch, 2);
  EXPECT_EQ(loaded->progress.sampler_position, 448);
  EXPECT_EQ(loaded->progress.seed, Progress().seed);
  EXPECT_EQ(loaded->progress.world_size, 3);
  EXPECT_EQ(loaded->progress.model, "mlp_small");
  EXPECT_EQ(loaded->progress.model_config, Progress().model_config);
  EXPECT_EQ(loaded->progress.generation_config, Progress().generation_config);
  EXPECT_EQ(loaded->progress.vocabulary, 50257);
  EXPECT_EQ(loaded->progress.options, Progress().options);
  EXPECT_EQ(loaded->progress.grad_scaler, Progress().grad_scaler);
}

TEST(Checkpoint, OtherToolsFindTheWeightsUnderTheirNames) {
  ASSERT_TRUE(Save(TestPath("c")).ok());
  auto reader = SafetensorsReader::Open(TestPath("c"));
  ASSERT_TRUE(reader.ok());
  EXPECT_NE((*reader)->Find("fc.weight"), nullptr);
  EXPECT_NE((*reader)->Find("optimizer.fc.weight.momentum_buffer"), nullptr);
  EXPECT_EQ(OptimizerStateName("optimizer.fc.weight.momentum_buffer"),
            "fc.weight.momentum_buffer");
  EXPECT_EQ((*reader)->metadata().at("format"), "pt");
  EXPECT_TRUE(IsCheckpointMetadata((*reader)->metadata()));
}

// What an accident does to a file: bits that flip, blocks that are zeroed,
// moved or lost, in the values or in the header; numbers edited by hand.
class DamagedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    NamedTensors model = {{"w", at::arange(40000.).view({100, 400})},
                          {"b", at::arange(100.)}};
    NamedTensors state = {{"w.exp_avg", at::ones({100, 400})},
                          {"w.step", at::scalar_tensor(30.)}};
    TrainingProgress progress = Progress();
    progress.step = 30;
    ASSERT_TRUE(WriteSafetensors(TestPath("whole"),
                                 *CheckpointTensors(model, state),
                                 CheckpointMetadata(progress))
                    .ok());
    whole_ = ReadBytes(TestPath("whole"));
    uint64_t length = 0;
    std::memcpy(&length, whole_.data(), 8);
    data_ = 8 + length;
  }

  // What a job that resumes from `bytes` is told, before it takes anything.
  static absl::Status ErrorOf(const std::string& bytes) {
    WriteBytes(TestPath("damaged"), bytes);
    const auto stored = OpenCheckpoint(TestPath("damaged"));
    if (!stored.ok()) return stored.status();
    for (const StoredTensors* part : {&stored->model, &stored->optimizer}) {
      for (const StoredTensor& each : *part) {
        const absl::Status verified = Verify(each);
        EXPECT_EQ(verified.ok(), each.read().ok()) << each.info.name;
        if (!verified.ok()) return verified;
      }
    }
    return absl::OkStatus();
  }

  void ExpectNoticed(const std::string& bytes, const std::string& what) {
    if (bytes == whole_) return;
    const absl::Status status = ErrorOf(bytes);
    EXPECT_FALSE(status.ok()) << what;
    EXPECT_TRUE(absl::StrContains(status.message(), TestPath("damaged")))
        << what << ": " << status;
  }

  std::string whole_;
  size_t data_ = 0;  // where the values begin
};

TEST_F(DamagedCheckpoint, TheWholeOneIsTaken) {
  EXPECT_TRUE(ErrorOf(whole_).ok()) << ErrorOf(whole_);
}

TEST_F(DamagedCheckpoint, ASingleBitIsNoticedWhereverItFlips) {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const size_t from = i % 2 == 0 ? 0 : data_;
    const size_t to = i % 2 == 0 ? data_ : whole_.size();
    const size_t at = from + random() % (to - from);
    std::string bytes = whole_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
    ExpectNoticed(bytes, absl::StrCat("a bit of byte ", at));
  }
}

TEST_F(DamagedCheckpoint, BlocksThatAreZeroedOrMovedAreNoticed) {
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    const size_t size = size_t{1} << (4 + i % 12);
    const size_t at = data_ + random() % (whole_.size() - data_ - size);
    const size_t to = data_ + random() % (whole_.size() - data_ - size);
    std::string zeroed = whole_;
    zeroed.replace(at, size, size, '\0');
    ExpectNoticed(zeroed, absl::StrCat(size, " zeros at ", at));
    std::string moved = whole_;
    moved.replace(to, size, whole_, at, size);
    ExpectNoticed(moved, absl::StrCat(size, " bytes of ", at, " at ", to));
  }
  std::string empty = whole_;
  empty.replace(data_, std::string::npos, whole_.size() - data_, '\0');
  ExpectNoticed(empty, "every value zero");
}

TEST_F(DamagedCheckpoint, EditedNumbersAreNoticed) {
  const std::pair<std::string, std::string> edits[] = {
      {"\"tandem.step\":\"30\"", "\"tandem.step\":\"31\""},
      {"\"tandem.step\":\"30\"", "\"tandem.step\":\"90\""},
      {"\"tandem.epoch\":\"2\"", "\"tandem.epoch\":\"3\""},
      {"\"tandem.sampler_position\":\"448\"",
       "\"tandem.sampler_position\":\"449\""},
      {"\"shape\":[100,400]", "\"shape\":[400,100]"},
      {"tandem.crc32.header", "tandem.crc32.hexder"},
      {"tandem.crc32.tensors", "tandem.crc32.tensorz"},
  };
  for (const auto& [before, after] : edits) {
    const std::string bytes = absl::StrReplaceAll(whole_, {{before, after}});
    ASSERT_NE(bytes, whole_) << before;
    ExpectNoticed(bytes, after);
  }
}

// Python's safetensors writes no checksums, and a file may go through it.
TEST(Checkpoint, InferenceHasTheAveragesWhereThereAreSome) {
  const at::Tensor average = at::ones({2, 3});
  StoredCheckpoint checkpoint;
  checkpoint.model = Model();
  checkpoint.optimizer = OptimizerState();
  EXPECT_EQ(WeightsSha256(ReadAll(InferenceWeights(checkpoint))),
            WeightsSha256(Model()));
  checkpoint.optimizer =
      NamedTensors{{"fc.weight.ema", average},
                   {"fc.weight.momentum_buffer", at::zeros({2, 3})}};
  EXPECT_EQ(WeightsSha256(ReadAll(InferenceWeights(checkpoint))),
            WeightsSha256({{"fc.weight", average}, Model()[1]}));
}

TEST(Checkpoint, OneWithoutChecksumsIsTaken) {
  std::vector<SafetensorsEntry> entries = {
      {"w", c10::ScalarType::Float, {1}, 0, 4}};
  std::string json =
      FormatSafetensorsHeader({entries, CheckpointMetadata(Progress())});
  const uint64_t length = json.size();
  std::ofstream(TestPath("foreign"), std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) << json
      << std::string(4, '\0');
  const auto loaded = OpenCheckpoint(TestPath("foreign"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(ReadAll(loaded->model)[0].second.equal(at::zeros({1})));
}

TEST(Checkpoint, NamesKeptForTheOptimizerAreRefused) {
  const absl::Status status =
      CheckpointTensors({{"optimizer.x", at::ones({1})}}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "optimizer.x")) << status;
}

TEST(Checkpoint, WrongFilesAreNamed) {
  EXPECT_EQ(OpenCheckpoint(TestPath("absent")).status().code(),
            absl::StatusCode::kNotFound);
  const SafetensorsMetadata good = {
      {"tandem.checkpoint", "1"}, {"tandem.step", "1"},
      {"tandem.epoch", "1"},      {"tandem.sampler_position", "1"},
      {"tandem.seed", "1"},       {"tandem.world_size", "1"},
      {"tandem.model", "x"}};
  const auto with = [&good](const char* key, const char* value) {
    SafetensorsMetadata metadata = good;
    metadata[key] = value;
    return metadata;
  };
  SafetensorsMetadata no_model = good;
  no_model.erase("tandem.model");
  const std::pair<SafetensorsMetadata, const char*> cases[] = {
      {{}, "no checkpoint of a training job"},
      {{{"format", "pt"}}, "no checkpoint of a training job"},
      {with("tandem.checkpoint", "2"), "version '2', this program reads 1"},
      {with("tandem.step", "x"), "tandem.step = 'x'"},
      {with("tandem.epoch", "-1"), "tandem.epoch = '-1'"},
      {with("tandem.seed", "-1"), "tandem.seed = '-1'"},
      {no_model, "lacks tandem.model"},
  };
  for (const auto& [metadata, message] : cases) {
    ASSERT_TRUE(
        WriteSafetensors(TestPath("foreign"), {{"w", at::ones({1})}}, metadata)
            .ok());
    const absl::Status status = OpenCheckpoint(TestPath("foreign")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), TestPath("foreign")));
  }
}

}  // namespace
}  // namespace tandem::checkpoint_test
