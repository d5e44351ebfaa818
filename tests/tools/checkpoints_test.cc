// Checkpoints and other files of tensors, as they are inspected and exported.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/safetensors.h"
#include "tools/exporting.h"
#include "tools/inspection.h"

namespace tandem::checkpoints_test {
namespace {

std::string Path(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / name;
}

std::string SaveExample() {
  const NamedTensors model = {{"w", at::arange(6.).view({2, 3})},
                              {"b", at::arange(4, at::kLong)}};
  TrainingProgress progress;
  progress.step = 7;
  EXPECT_TRUE(WriteSafetensors(Path("example"),
                               *CheckpointTensors(model, {{"a.momentum_buffer",
                                                           at::ones({5})}}),
                               CheckpointMetadata(progress))
                  .ok());
  return WeightsSha256(model);
}

void FlipByte(const std::string& path, int64_t from_end) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(file.peek() ^ 1);
  file.seekp(-from_end, std::ios::end);
  file.put(byte);
}

TEST(Inspection, SaysWhetherTheFileIsAsItWasWritten) {
  SaveExample();
  EXPECT_EQ(Inspect(Path("example"))->checksums, "hold");
  FlipByte(Path("example"), 1);
  const auto damaged = Inspect(Path("example"));
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  EXPECT_TRUE(absl::StrContains(damaged->checksums, "the values of w (bytes "))
      << damaged->checksums;
  EXPECT_EQ(Inspect("tests/core/checkpoint/data/python.safetensors")->checksums,
            "none");
}

TEST(Inspection, AFileOfTorchSaveIsShownAsAnother) {
  const auto inspection = Inspect("tests/core/pytorch_file/data/module.pt");
  ASSERT_TRUE(inspection.ok()) << inspection.status();
  const at::Tensor ones = at::ones({2});
  const at::Tensor zeros = at::zeros({2});
  EXPECT_EQ(inspection->weights_sha256,
            WeightsSha256({{"weight", ones},
                           {"bias", zeros},
                           {"running_mean", zeros},
                           {"running_var", ones},
                           {"num_batches_tracked", at::arange(1).squeeze()}}));
  EXPECT_EQ(inspection->checksums, "hold");
  EXPECT_FALSE(inspection->is_checkpoint);
  EXPECT_EQ(inspection->tensors.front().name, "bias");
  EXPECT_EQ(inspection->bytes, 40u);
  const auto refused = Inspect("tests/core/pytorch_file/data/command.pt");
  EXPECT_TRUE(absl::StrContains(refused.status().message(), "posix.system"));
}

TEST(Inspection, ListsTensorsOfDtypesThatAreNotRead) {
  const std::string header =
      R"({"s":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[0,4]},)"
      R"("p":{"dtype":"F4","shape":[2,2],"data_offsets":[4,6]}})";
  const uint64_t length = header.size();
  std::ofstream(Path("mx"), std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), sizeof(length))
      << header << "123456";
  const auto inspection = Inspect(Path("mx"));
  ASSERT_TRUE(inspection.ok()) << inspection.status();
  EXPECT_EQ(inspection->tensors[0].DtypeText(), "F4");
  EXPECT_EQ(inspection->weight_values, 8);
  EXPECT_EQ(inspection->weights_sha256,
            "none: p is of dtype F4, which is not read");
  EXPECT_TRUE(absl::StrContains(InspectionTable(*inspection), "F8_E8M0"));
  EXPECT_TRUE(absl::StrContains(InspectionJson(*inspection), "F8_E8M0"));
}

TEST(Inspection, FingerprintIsThatOfParametersAndBuffersOnly) {
  const std::string expected = SaveExample();
  const auto inspection = Inspect(Path("example"));
  ASSERT_TRUE(inspection.ok()) << inspection.status();
  EXPECT_TRUE(inspection->is_checkpoint);
  EXPECT_EQ(inspection->weights_sha256, expected);
  EXPECT_EQ(inspection->weight_tensors, 2);
  EXPECT_EQ(inspection->weight_values, 10);
  EXPECT_EQ(inspection->bytes, 24u + 32u + 20u);
  ASSERT_EQ(inspection->tensors.size(), 3u);
  EXPECT_EQ(inspection->tensors[0].name, "b");
  EXPECT_EQ(inspection->tensors[1].name, "w");
  EXPECT_EQ(inspection->tensors[2].name, "optimizer.a.momentum_buffer");
}

TEST(Inspection, TableAndJsonSayTheSame) {
  const std::string sha256 = SaveExample();
  const auto inspection = Inspect(Path("example"));
  ASSERT_TRUE(inspection.ok()) << inspection.status();
  const std::string table = InspectionTable(*inspection);
  for (const std::string& part :
       {std::string("F32"), std::string("[2, 3]"), std::string("24\n"),
        std::string("3 tensors, 76 bytes"), std::string("tandem.step = 7"),
        "weights_sha256 " + sha256 + "\n", std::string("checksums hold\n")}) {
    EXPECT_TRUE(absl::StrContains(table, part)) << part << " in\n" << table;
  }
  const auto json = nlohmann::json::parse(InspectionJson(*inspection));
  EXPECT_EQ(json["weights_sha256"], sha256);
  EXPECT_EQ(json["checkpoint"], true);
  EXPECT_EQ(json["checksums"], "hold");
  EXPECT_EQ(json["metadata"]["tandem.step"], "7");
  EXPECT_EQ(
      json["tensors"][1],
      nlohmann::json(
          {{"name", "w"}, {"dtype", "F32"}, {"shape", {2, 3}}, {"bytes", 24}}));
}

// What "optimizer." means is a matter of our checkpoints alone.
TEST(Inspection, EveryTensorOfAForeignFileCounts) {
  const NamedTensors tensors = {{"optimizer.x", at::ones({1})}};
  ASSERT_TRUE(WriteSafetensors(Path("foreign"), tensors).ok());
  const auto inspection = Inspect(Path("foreign"));
  ASSERT_TRUE(inspection.ok());
  EXPECT_FALSE(inspection->is_checkpoint);
  EXPECT_EQ(inspection->weights_sha256, WeightsSha256(tensors));
}

TEST(Inspection, BadFileIsNamed) {
  const absl::Status status = Inspect(Path("absent")).status();
  EXPECT_TRUE(absl::StrContains(status.message(), Path("absent"))) << status;
}

// What an export writes of models: tests/e2e/train/init_from_test.cc.
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
}  // namespace tandem::checkpoints_test
