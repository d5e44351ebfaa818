#include "core/digest/hmac_sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"

namespace tandem::hmac_sha256_test {
namespace {

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
}  // namespace tandem::hmac_sha256_test
