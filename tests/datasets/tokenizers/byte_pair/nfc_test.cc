// Expected values are those of Python's unicodedata (3.11, Unicode 14).

#include "datasets/tokenizers/byte_pair/nfc.h"

#include <functional>
#include <string>

#include "core/digest/sha256.h"
#include "datasets/tokenizers/byte_pair/utf8.h"
#include "gtest/gtest.h"

namespace tandem::nfc_test {
namespace {

TEST(NfcTest, LettersAndTheirMarksAreOneCharacter) {
  EXPECT_EQ(Nfc(""), "");
  EXPECT_EQ(Nfc("plain text"), "plain text");
  EXPECT_EQ(Nfc("cafe\u0301s"), "caf\u00e9s");
  EXPECT_EQ(Nfc("caf\u00e9"), "caf\u00e9");
  // Marks below come before marks above, and are taken first.
  EXPECT_EQ(Nfc("a\u0302\u0323"), "\u1ead");
  EXPECT_EQ(Nfc("\u00e2\u0323"), "\u1ead");
  // A mark of the same class in between keeps the other one off.
  EXPECT_EQ(Nfc("a\u0300\u0301"), "\u00e0\u0301");
  EXPECT_EQ(Nfc("\u0301a"), "\u0301a");
}

TEST(NfcTest, SomeCharactersAreReplaced) {
  EXPECT_EQ(Nfc("\u212b"), "\u00c5");        // the Angstrom sign
  EXPECT_EQ(Nfc("\u2126m"), "\u03a9m");      // the Ohm sign
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093c");  // never put together again
  EXPECT_EQ(Nfc("\U0002f800"), "\u4e3d");
}

TEST(NfcTest, HangulIsPutTogether) {
  EXPECT_EQ(Nfc("\u1112\u1161"), "\ud558");
  EXPECT_EQ(Nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(Nfc("\ud558\u11ab"), "\ud55c");
  EXPECT_EQ(Nfc("\ud55c\u11ab"), "\ud55c\u11ab");
  EXPECT_EQ(Nfc("\u1161\u11ab"), "\u1161\u11ab");
}

std::string DigestOfAll(
    const std::function<std::string(const std::string&)>& text_of) {
  std::string text;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string character;
    AppendUtf8(code, &character);
    text += text_of(character) + "\n";
  }
  Sha256 hash;
  hash.Update(Nfc(text));
  return hash.HexDigest();
}

TEST(NfcTest, EveryCharacterAloneAndAmongOthers) {
  EXPECT_EQ(DigestOfAll([](const std::string& each) { return each; }),
            "9cc65524a9d8082bf10840c616cd199bd2ac12ee49a3381bd6fb7957711f342b");
  EXPECT_EQ(DigestOfAll([](const std::string& each) {
              return "a" + each + "\u0301\u0323";
            }),
            "42e218c870f9a28bde260a5185e8ba1de4cab693faed0efa365132272c5540e4");
  EXPECT_EQ(DigestOfAll([](const std::string& each) {
              return "\u1100" + each + "\u11a8";
            }),
            "3fa5f28822169b2af53e693f80f6d5d88f8526c203fa0d2838d25d003dd40aeb");
}

}  // namespace
}  // namespace tandem::nfc_test
