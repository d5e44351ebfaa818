// What it writes: tests/e2e/train/init_from_test.cc.

#include "tools/exporting.h"

#include <cstdint>
#include <string>
#include <utility>

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

}  // namespace
}  // namespace tandem::exporting_test
