#include "core/tensorboard/summary.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"

namespace tandem::summary_test {
namespace {

using testing::HasSubstr;
using testing::Not;

// A PNG's signature and header, of such a size.
std::string PngOf(int height, int width, char colour_type = 2) {
  const auto number = [](int value) {
    std::string bytes;
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<char>(value >> shift & 0xFF));
    }
    return bytes;
  };
  return absl::StrCat("\x89PNG\r\n\x1a\n", number(13), "IHDR", number(width),
                      number(height), std::string("\x08", 1),
                      std::string(1, colour_type), std::string(3, '\0'),
                      "CRC.");
}

std::string Hex(const Summary& summary) {
  return absl::BytesToHexString(summary.message());
}

// Value{tag: "a/b", simple_value: 0.25}.
constexpr char kScalarInHex[] = "0a0a0a03612f62150000803e";

TEST(SummaryTest, AScalarHasTensorBoardsBytes) {
  Summary summary;
  EXPECT_TRUE(summary.empty());
  ExpectOk(summary.AddScalar("a/b", 0.25));
  EXPECT_EQ(Hex(summary), kScalarInHex);
  EXPECT_FALSE(summary.empty());
}

// Value{tag: "t", tensor {dtype: DT_STRING, tensor_shape {dim {size: 1}},
// string_val: "hi"}, metadata {plugin_data {plugin_name: "text"}}}.
TEST(SummaryTest, ATextIsATensorOfThePluginText) {
  Summary summary;
  ExpectOk(summary.AddText("t", "hi"));
  EXPECT_EQ(Hex(summary),
            "0a1b"
            "0a0174"
            "420c"
            "0807"
            "120412020801"
            "42026869"
            "4a08"
            "0a060a0474657874");
}

// Value{tag: "h", histo {min: 1, max: 1, num: 1, sum: 1, sum_squares: 1,
// bucket_limit: [...], bucket: [0, 1]}}.
TEST(SummaryTest, AHistogramIsTheOneOfItsValues) {
  Summary summary;
  ExpectOk(summary.AddHistogram("h", at::ones({1})));
  const std::string one = "000000000000f03f";
  const std::string zero(16, '0');
  const std::string found = Hex(summary);
  EXPECT_EQ(found.substr(0, 14), "0a560a01682a51");
  EXPECT_EQ(found.substr(14, 90), absl::StrCat("09", one, "11", one, "19", one,
                                               "21", one, "29", one));
  EXPECT_EQ(found.substr(104, 4), "3210");
  EXPECT_EQ(found.substr(140), absl::StrCat("3a10", zero, one));
}

TEST(SummaryTest, ValuesThatAreNotFiniteAreAScalarBesideTheHistogram) {
  Summary some, none, all;
  ExpectOk(some.AddHistogram("h", at::tensor({1.0, std::nan("")})));
  EXPECT_THAT(some.message(), HasSubstr("h/nonfinite"));
  EXPECT_THAT(Hex(some), HasSubstr("150000803f"));  // 1
  ExpectOk(none.AddHistogram("h", at::ones({2})));
  EXPECT_THAT(none.message(), Not(HasSubstr("nonfinite")));
  ExpectOk(all.AddHistogram("h", at::full({3}, std::nan(""))));
  Summary expected;
  ExpectOk(expected.AddScalar("h/nonfinite", 3));
  EXPECT_EQ(Hex(all), Hex(expected));
}

TEST(SummaryTest, AnImageHasTheChannelsOfItsHeader) {
  const std::vector<std::pair<char, std::string>> channels = {
      {0, "01"}, {2, "03"}, {3, "03"}, {4, "02"}, {6, "04"}};
  for (const auto& [colour_type, expected] : channels) {
    Summary summary;
    const std::string png = PngOf(3, 5, colour_type);
    ExpectOk(summary.AddImage("i", png, 3, 5));
    EXPECT_EQ(Hex(summary),
              absl::StrCat("0a2e0a0169222908031005", "18", expected, "2221",
                           absl::BytesToHexString(png)));
  }
}

TEST(SummaryTest, OtherImagesAreRefused) {
  Summary summary;
  const std::string png = PngOf(3, 5);
  EXPECT_THAT(summary.AddImage("i", png, 5, 3),
              InvalidArgument("\"i\"", "3 x 5", "5 x 3"));
  EXPECT_THAT(summary.AddImage("i", png.substr(0, 32), 3, 5),
              InvalidArgument("\"i\"", "no PNG"));
  for (const std::string& other : {std::string(), std::string("GIF89a"),
                                   PngOf(3, 5, 1), std::string(100, '\x89')}) {
    EXPECT_THAT(summary.AddImage("i", other, 3, 5), InvalidArgument("no PNG"));
  }
  EXPECT_TRUE(summary.empty());
}

TEST(SummaryTest, HostileTagsAreRefusedByAllMethods) {
  const std::string with_zero("a\0b", 3);
  for (const auto& [tag, why] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "is empty"},
           {with_zero, "a\\x00b\" has a zero byte"},
           {"caf\xe9", "caf\\xe9\" is no UTF-8"},
           {"\xc0\xaf", "is no UTF-8"},
           {"\xed\xa0\x80", "is no UTF-8"},
           {"a\xf0\x9f", "is no UTF-8"}}) {
    Summary summary;
    EXPECT_THAT(summary.AddScalar(tag, 1), InvalidArgument(why));
    EXPECT_THAT(summary.AddText(tag, "text"), InvalidArgument(why));
    EXPECT_THAT(summary.AddHistogram(tag, at::ones({1})), InvalidArgument(why));
    EXPECT_THAT(summary.AddImage(tag, PngOf(1, 1), 1, 1), InvalidArgument(why));
    EXPECT_TRUE(summary.empty());
  }
  Summary summary;
  ExpectOk(summary.AddScalar("Größe/损失 %n\n", 1));
}

TEST(SummaryTest, ATextOfOtherBytesIsRefusedByItsTag) {
  Summary summary;
  EXPECT_THAT(summary.AddText("t", "caf\xe9"),
              InvalidArgument("\"t\"", "no UTF-8"));
  EXPECT_THAT(summary.AddHistogram("h", at::empty({0})),
              InvalidArgument("\"h\"", "no elements"));
  EXPECT_TRUE(summary.empty());
  ExpectOk(summary.AddText("t", ""));
}

}  // namespace
}  // namespace tandem::summary_test
