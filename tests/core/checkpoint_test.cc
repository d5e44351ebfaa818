#include "core/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>

#include <filesystem>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "core/fingerprint.h"
#include "core/safetensors.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

std::string Path(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / name;
}

Checkpoint Example() {
  Checkpoint checkpoint;
  checkpoint.model = {
      {"fc.weight", at::arange(6.).view({2, 3})},
      {"bn.num_batches_tracked", at::scalar_tensor(3, at::kLong)}};
  checkpoint.optimizer = {{"fc.weight.momentum_buffer", at::ones({2, 3})}};
  checkpoint.progress.step = 7;
  checkpoint.progress.epoch = 2;
  checkpoint.progress.sampler_position = 448;
  checkpoint.progress.seed = std::numeric_limits<uint64_t>::max();
  checkpoint.progress.world_size = 3;
  checkpoint.progress.model = "mlp_small";
  checkpoint.progress.options = {{"classes", "10"}, {"empty", ""}};
  return checkpoint;
}

TEST(Checkpoint, ComesBackAsItWasSaved) {
  const Checkpoint saved = Example();
  ASSERT_TRUE(SaveCheckpoint(Path("c"), saved).ok());
  const auto loaded = LoadCheckpoint(Path("c"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(WeightsSha256(loaded->model), WeightsSha256(saved.model));
  EXPECT_EQ(WeightsSha256(loaded->optimizer), WeightsSha256(saved.optimizer));
  EXPECT_EQ(loaded->progress.step, 7);
  EXPECT_EQ(loaded->progress.epoch, 2);
  EXPECT_EQ(loaded->progress.sampler_position, 448);
  EXPECT_EQ(loaded->progress.seed, saved.progress.seed);
  EXPECT_EQ(loaded->progress.world_size, 3);
  EXPECT_EQ(loaded->progress.model, "mlp_small");
  EXPECT_EQ(loaded->progress.options, saved.progress.options);
}

TEST(Checkpoint, OtherToolsFindTheWeightsUnderTheirNames) {
  ASSERT_TRUE(SaveCheckpoint(Path("c"), Example()).ok());
  auto reader = SafetensorsReader::Open(Path("c"));
  ASSERT_TRUE(reader.ok());
  EXPECT_NE((*reader)->Find("fc.weight"), nullptr);
  EXPECT_NE((*reader)->Find("optimizer.fc.weight.momentum_buffer"), nullptr);
  EXPECT_EQ((*reader)->metadata().at("format"), "pt");
  EXPECT_TRUE(IsCheckpointMetadata((*reader)->metadata()));
}

TEST(Checkpoint, NamesKeptForTheOptimizerAreRefused) {
  Checkpoint checkpoint;
  checkpoint.model = {{"optimizer.x", at::ones({1})}};
  const absl::Status status = SaveCheckpoint(Path("reserved"), checkpoint);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "optimizer.x")) << status;
}

TEST(Checkpoint, WrongFilesAreNamed) {
  EXPECT_EQ(LoadCheckpoint(Path("absent")).status().code(),
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
        WriteSafetensors(Path("foreign"), {{"w", at::ones({1})}}, metadata)
            .ok());
    const absl::Status status = LoadCheckpoint(Path("foreign")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), Path("foreign")));
  }
}

}  // namespace
}  // namespace tandem
