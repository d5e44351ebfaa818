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

}  // namespace
}  // namespace tandem::exporting_test
