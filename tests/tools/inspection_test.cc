#include "tools/inspection.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/safetensors.h"
#include "gtest/gtest.h"

namespace tandem::inspection_test {
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

}  // namespace
}  // namespace tandem::inspection_test
