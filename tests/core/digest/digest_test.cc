#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "core/digest/crc32.h"
#include "core/digest/hmac_sha256.h"
#include "core/digest/sha256.h"
#include "gtest/gtest.h"

namespace tandem::digest_test {
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

std::string Hash(const std::string& message) {
  Sha256 hash;
  hash.Update(message);
  return hash.HexDigest();
}

// The examples of FIPS 180-4 and of NIST's SHA256ShortMsg.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(Hash(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hash("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hash(std::string(1, '\xd3')),
            "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
  EXPECT_EQ(Hash(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Lengths at which the padding fills a block, or spills into one more.
TEST(Sha256, DoesNotDependOnWhereTheMessageIsCut) {
  for (size_t size : {1, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129}) {
    std::string message;
    for (size_t i = 0; i < size; ++i) message += static_cast<char>(7 * i);
    for (size_t piece : {1, 3, 63, 64, 65}) {
      Sha256 hash;
      for (size_t at = 0; at < size; at += piece) {
        hash.Update(message.data() + at, std::min(piece, size - at));
        hash.Update(nullptr, 0);
      }
      EXPECT_EQ(hash.HexDigest(), Hash(message)) << size << " by " << piece;
    }
  }
}

TEST(Sha256, GoesOnAfterADigest) {
  Sha256 hash;
  hash.Update("a");
  EXPECT_EQ(hash.HexDigest(), Hash("a"));
  hash.Update("bc");
  EXPECT_EQ(hash.HexDigest(), Hash("abc"));
}

std::string Hex(const std::string& key, const std::string& message) {
  return absl::BytesToHexString(HmacSha256(key).Of({message}));
}

// RFC 4231.
TEST(HmacSha256Test, KnownCodes) {
  EXPECT_EQ(Hex(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  // A key that is longer than a block.
  EXPECT_EQ(Hex(std::string(131, '\xaa'),
                "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(Hex("", ""),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(HmacSha256Test, PiecesAreOneMessage) {
  const HmacSha256 hmac("key");
  EXPECT_EQ(hmac.Of({"a", "", "bc"}), hmac.Of({"abc"}));
  EXPECT_NE(hmac.Of({"abc"}), hmac.Of({"abd"}));
}

TEST(SameCodeTest, ComparesAllOfBoth) {
  EXPECT_TRUE(SameCode("", ""));
  EXPECT_TRUE(SameCode("abc", "abc"));
  EXPECT_FALSE(SameCode("abc", "abd"));
  EXPECT_FALSE(SameCode("abc", "bbc"));
  EXPECT_FALSE(SameCode("abc", "abcd"));
  EXPECT_FALSE(SameCode("abc", ""));
}

}  // namespace
}  // namespace tandem::digest_test
