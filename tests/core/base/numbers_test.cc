#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/byte_size.h"
#include "core/base/round_up.h"
#include "core/base/tensors.h"
#include "core/digest/hmac_sha256.h"

namespace tandem::numbers_test {
namespace {

using c10::ScalarType;
using ::testing::HasSubstr;

TEST(ParseByteSizeTest, KnowsUnits) {
  const std::vector<std::pair<const char*, int64_t>> cases = {
      {"0", 0},
      {"1", 1},
      {"4096", 4096},
      {"512B", 512},
      {"1KiB", 1024},
      {"1KB", 1000},
      {"64MB", 64000000},
      {"512MiB", int64_t{512} << 20},
      {"80GiB", int64_t{80} << 30},
      {"80GB", 80000000000},
      {"2TiB", int64_t{2} << 40},
      {"2TB", 2000000000000},
  };
  for (const auto& [text, bytes] : cases) {
    const auto parsed = ParseByteSize(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseByteSizeTest, TakesAnyCaseAndSpaces) {
  for (const char* text :
       {"3MiB", "3 MiB", " 3mib ", "3MIB", "3  mIb", "3072KiB", "3145728"}) {
    const auto parsed = ParseByteSize(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, 3 << 20) << text;
  }
}

TEST(ParseByteSizeTest, RoundsFractionsDown) {
  EXPECT_EQ(ParseByteSize("1.5 MiB").value(), 3 << 19);
  EXPECT_EQ(ParseByteSize("0.1KiB").value(), 102);
  EXPECT_EQ(ParseByteSize("0.9").value(), 0);
  EXPECT_EQ(ParseByteSize("1.9B").value(), 1);
}

TEST(ParseByteSizeTest, GoesUpTo62Bits) {
  EXPECT_EQ(ParseByteSize("4611686018427387904").value(), int64_t{1} << 62);
  EXPECT_EQ(ParseByteSize("4194304TiB").value(), int64_t{1} << 62);
  EXPECT_FALSE(ParseByteSize("4194305TiB").ok());
  EXPECT_FALSE(ParseByteSize("1e300").ok());
}

TEST(ParseByteSizeTest, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", " ", "GiB", "B", "-1", "-1GiB", "lots", "5 K", "5KiBB", "1.2.3",
        "80 GiB or so", "1,5MiB", "nan", "inf", "infGiB"}) {
    const absl::Status status = ParseByteSize(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr("'" + std::string(text) + "'"));
    EXPECT_THAT(status.message(), HasSubstr("80GiB, 512MiB or 4096"));
  }
}

TEST(FormatBytesTest, TakesTheLargestUnit) {
  const std::vector<std::pair<int64_t, const char*>> cases = {
      {0, "0 B"},
      {1, "1 B"},
      {512, "512 B"},
      {1023, "1023 B"},
      {1024, "1 KiB"},
      {1536, "1.5 KiB"},
      {3 << 19, "1.5 MiB"},
      {int64_t{80} << 30, "80 GiB"},
      {int64_t{3} << 40, "3 TiB"},
      {int64_t{9} << 49, "4608 TiB"},
      {-2048, "-2 KiB"},
      {1234567, "1.177 MiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(FormatBytes(bytes), text);
}

TEST(FormatBytesTest, IsReadBack) {
  for (const int64_t bytes : {int64_t{0}, int64_t{7}, int64_t{1536},
                              int64_t{512} << 20, int64_t{80} << 30}) {
    EXPECT_EQ(ParseByteSize(FormatBytes(bytes)).value(), bytes);
  }
}

TEST(RoundUp, GivesTheLeastMultiple) {
  EXPECT_EQ(RoundUp(0, 64), 0);
  EXPECT_EQ(RoundUp(1, 64), 64);
  EXPECT_EQ(RoundUp(64, 64), 64);
  EXPECT_EQ(RoundUp(65, 64), 128);
  EXPECT_EQ(RoundUp(7, 3), 9);
  EXPECT_EQ(RoundUp(7, 1), 7);
  EXPECT_EQ(RoundUp(size_t{1} << 40, size_t{4096}), size_t{1} << 40);
  static_assert(RoundUp<int64_t>(5, 4) == 8, "in constants, too");
}

TEST(RoundedTo, IsWhatTheDtypeHolds) {
  const double third = 1.0 / 3;
  EXPECT_EQ(RoundedTo(ScalarType::BFloat16, third), 0.333984375);
  EXPECT_EQ(RoundedTo(ScalarType::Half, third), 0.333251953125);
  EXPECT_EQ(RoundedTo(ScalarType::Float, third), third + third / (1 << 25));
  EXPECT_EQ(RoundedTo(ScalarType::Double, third), third);
  for (const ScalarType dtype :
       {ScalarType::BFloat16, ScalarType::Half, ScalarType::Float}) {
    EXPECT_EQ(RoundedTo(dtype, 0.25), 0.25) << dtype;
  }
  EXPECT_EQ(RoundedTo(ScalarType::Half, 65536),
            std::numeric_limits<double>::infinity());
}

TEST(RandomBytesTest, AsManyAsAskedForAndNoneTwice) {
  EXPECT_EQ(RandomBytes(0).value(), "");
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(RandomBytes(32).value());
  EXPECT_EQ(seen.size(), 100);
  EXPECT_EQ(seen.begin()->size(), 32);
  EXPECT_EQ(RandomBytes(256).value().size(), 256);
}

}  // namespace
}  // namespace tandem::numbers_test
