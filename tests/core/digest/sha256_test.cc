#include "core/digest/sha256.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

namespace tandem::sha256_test {
namespace {

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

}  // namespace
}  // namespace tandem::sha256_test
