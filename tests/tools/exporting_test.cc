// What it writes of models: tests/e2e/train/init_from_test.cc.

#include "tools/exporting.h"

#include <ATen/ops/full.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/safetensors.h"
#include "gtest/gtest.h"

namespace tandem::exporting_test {
namespace {

TEST(ExportingTest, SizesOfShards) {
  for (const auto& [text, bytes] :
       {std::pair<const char*, uint64_t>{"5GB", 5000000000},
        {"500MB", 500000000},
        {"12KB", 12000},
        {"2GiB", uint64_t{1} << 31},
        {"3KiB", 3072},
        {"1000", 1000}}) {
    const auto size = ParseShardSize(text);
    ASSERT_TRUE(size.ok()) << size.status();
    EXPECT_EQ(*size, bytes) << text;
  }
  for (const char* text :
       {"", "GB", "0", "-1GB", "5TB", "1.5GB", "99999999999GB"}) {
    EXPECT_FALSE(ParseShardSize(text).ok()) << text;
  }
}

// Before the checkpoint is looked at.
TEST(ExportingTest, WhatIsSaidOfAFolderIsRefusedForOneFile) {
  ExportOptions options;
  options.checkpoint = "/no/such/checkpoint";
  options.output = "model.safetensors";
  const auto message = [](const ExportOptions& given) {
    return std::string(Export(given).status().message());
  };
  EXPECT_NE(message(options).find("/no/such/checkpoint"), std::string::npos);
  ExportOptions config = options, model = options, shards = options;
  config.config = "config.json";
  model.model = "gpt2";
  shards.max_shard_bytes = 1000;
  EXPECT_EQ(message(config),
            "--config=config.json is about a folder with config.json, but "
            "--output=model.safetensors is one file, of any model: leave it "
            "out");
  EXPECT_EQ(message(model).find("--model=gpt2 is about a folder"), 0u);
  EXPECT_EQ(message(shards).find("--max_shard_size is about a folder"), 0u);
}

// A checkpoint of one file, of one tensor, in a folder of its own.
std::string CheckpointOf(const std::string& name, const at::Tensor& weights) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  TrainingProgress progress;
  progress.model = "made";
  const std::string path = (folder / "checkpoint.safetensors").string();
  EXPECT_TRUE(
      WriteSafetensors(path, {{"w", weights}}, CheckpointMetadata(progress))
          .ok());
  return path;
}

ExportOptions From(const std::string& checkpoint, const std::string& output) {
  ExportOptions options;
  options.checkpoint = checkpoint;
  options.output = output;
  return options;
}

TEST(ExportingTest, NoCheckpointIsWrittenOver) {
  const std::string path = CheckpointOf("own", at::full({2}, 1.f));
  const std::string link = path + ".link.safetensors";
  std::filesystem::create_symlink(path, link);
  for (const std::string& output : {path, link}) {
    const auto said = Export(From(path, output));
    EXPECT_EQ(said.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(said.status().message(),
                                  output + " is a checkpoint, or lies in one"))
        << said.status();
    EXPECT_TRUE(OpenCheckpoint(path).ok());
  }
  // What was exported before may be.
  const std::string other = path + ".other.safetensors";
  EXPECT_TRUE(Export(From(path, other)).ok());
  EXPECT_TRUE(Export(From(path, other)).ok());
}

TEST(ExportingTest, AnExportHasTheAverages) {
  const std::string path = CheckpointOf("trained", at::full({2}, 1.f));
  TrainingProgress progress;
  progress.model = "made";
  const at::Tensor average = at::full({2}, 3.f);
  ASSERT_TRUE(WriteSafetensors(path,
                               {{"w", at::full({2}, 1.f)},
                                {CheckpointNameOfState("w.ema"), average}},
                               CheckpointMetadata(progress))
                  .ok());
  const std::string output = path + ".averages.safetensors";
  ASSERT_TRUE(Export(From(path, output)).ok());
  const auto reader = SafetensorsReader::Open(output);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ((*reader)->entries().size(), 1u);
  EXPECT_EQ((*reader)->entries()[0].name, "w");
  EXPECT_TRUE((*reader)->Read((*reader)->entries()[0]).value().equal(average));
}

TEST(ExportingTest, ValuesThatAreNotFiniteAreSaid) {
  const at::Tensor weights = at::full({2}, 1e5f);
  const std::string path = CheckpointOf("large", weights);
  ExportOptions options = From(path, path + ".half.safetensors");
  EXPECT_FALSE(absl::StrContains(Export(options).value(), "warning"));
  for (const char* name : {"float16", "fp16"}) {
    options.dtype = name;
    EXPECT_EQ(Export(options).status().code(), absl::StatusCode::kOutOfRange);
  }
  weights[0] = std::nan("");
  options.checkpoint = CheckpointOf("diverged", weights);
  options.dtype = "float32";
  const auto said = Export(options);
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_TRUE(absl::StrContains(
      *said,
      "\nwarning: values that are not finite in 1 tensor: w has 1 NaN and"))
      << *said;
}

}  // namespace
}  // namespace tandem::exporting_test
