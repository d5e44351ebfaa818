#include "core/digest/crc32.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace tandem::crc32_test {
namespace {

// A bit at a time, by the polynomial.
uint32_t ByHand(const std::string& text) {
  uint32_t crc = ~0u;
  for (const char letter : text) {
    crc ^= static_cast<uint8_t>(letter);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

uint32_t Of(const std::string& text) {
  return Crc32(0, text.data(), text.size());
}

TEST(Crc32Test, IsGzips) {
  EXPECT_EQ(Of("123456789"), 0xcbf43926u);
  EXPECT_EQ(Of(""), 0u);
  EXPECT_EQ(Crc32(7, nullptr, 0), 7u);
}

TEST(Crc32Test, OfEverySizeAndPlace) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * i * 7 + i);
  for (const size_t begin : {0, 1, 7, 15, 33}) {
    for (const size_t size : {0, 1, 15, 16, 17, 63, 64, 65, 255, 511, 900}) {
      const std::string part = text.substr(begin, size);
      EXPECT_EQ(Crc32(0, text.data() + begin, size), ByHand(part))
          << begin << ", " << size;
    }
  }
}

TEST(Crc32Test, GoesOnAndIsPutTogether) {
  const std::string text(12345, 'x');
  for (const size_t cut : {0, 1, 4096, 12344, 12345}) {
    const uint32_t first = Crc32(0, text.data(), cut);
    EXPECT_EQ(Crc32(first, text.data() + cut, text.size() - cut), Of(text));
    EXPECT_EQ(CombineCrc32(first, Of(text.substr(cut)), text.size() - cut),
              Of(text));
  }
}

}  // namespace
}  // namespace tandem::crc32_test
