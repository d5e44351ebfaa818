#include "core/base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::printable_test {
namespace {

TEST(Printable, NothingOfAnEscapeSequenceIsLeft) {
  // Clears a terminal's screen, and names its window.
  EXPECT_EQ(Printable("fc1\x1b[2J.weight"), "fc1\\x1b[2J.weight");
  EXPECT_EQ(Printable("\x1b]0;name\x07"), "\\x1b]0;name\\x07");
  // CSI as one character, U+009B; and what a line is overwritten with.
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "31m"),
            "a\\xc2\\x9b31m");
  EXPECT_EQ(Printable("a\rb\bc\x7f"), "a\\rb\\x08c\\x7f");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
}

TEST(Printable, WhatIsNoControlCharacterStaysAsItIs) {
  for (const char* text : {"", "transformer.h.0.attn.c_attn.weight", "a \\n b",
                           "gr\xc3\xb6\xc3\x9f", "\xe6\xa8\xa1\xe5\x9e\x8b",
                           "\xc2\xa0", "\xf0\x9f\x98\x80"}) {
    EXPECT_EQ(Printable(text), text);
    EXPECT_EQ(PrintableLines(text), text);
  }
}

// Bytes of Latin-1, or of a character that was cut: 0x9b is CSI to some
// terminals.
TEST(Printable, BytesOfNoCharacterAreEscaped) {
  EXPECT_EQ(Printable("caf\xe9 \x9b"
                      "31m"),
            "caf\\xe9 \\x9b31m");
  EXPECT_EQ(Printable("\xc2"), "\\xc2");
  EXPECT_EQ(Printable("\xe6\xa8"), "\\xe6\\xa8");
  EXPECT_EQ(PrintableLines("\xff\n"), "\\xff\n");
}

TEST(Printable, LineEndsStayInLinesAlone) {
  EXPECT_EQ(Printable("a\tb\nc"), "a\\tb\\nc");
  EXPECT_EQ(PrintableLines("a\x1b[0m\nc\n"), "a\\x1b[0m\nc\n");
}

}  // namespace
}  // namespace tandem::printable_test
