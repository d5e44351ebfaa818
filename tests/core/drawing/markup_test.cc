// Text in markup and Markdown.

#include "core/drawing/markup.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::markup_test {
namespace {

TEST(EscapedMarkupTest, LeavesPlainTextAsItIs) {
  EXPECT_EQ(EscapedMarkup(""), "");
  EXPECT_EQ(EscapedMarkup("layer3.0 = 7 %"), "layer3.0 = 7 %");
  EXPECT_EQ(EscapedMarkup("caf\xc3\xa9"), "caf\xc3\xa9");
}

TEST(EscapedMarkupTest, HasReferencesForWhatMarkupIsMadeOf) {
  EXPECT_EQ(EscapedMarkup("<a b=\"c\">'&amp;'</a>"),
            "&lt;a b=&#34;c&#34;&gt;&#39;&amp;amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(EscapedMarkup("]]>"), "]]&gt;");
}

TEST(EscapedMarkupTest, HasNothingThatMarkupMayNotHave) {
  EXPECT_EQ(EscapedMarkup(std::string("\0\x01\n", 3)), "\\x00\\x01\\n");
  EXPECT_EQ(EscapedMarkup("\xff<"), "\\xff&lt;");
  EXPECT_EQ(EscapedMarkup("\xef\xbf\xbe\xef\xbf\xbf"),
            "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(MarkdownCellTest, IsOneCellWhateverTheTextHas) {
  EXPECT_EQ(MarkdownCell("--save_dir=runs/a"), "--save_dir=runs/a");
  EXPECT_EQ(MarkdownCell("a|b\nc"), "a\\|b<br>c");
  EXPECT_EQ(MarkdownCell("caf\xc3\xa9\xff"), "caf\xc3\xa9\xef\xbf\xbd");
}

}  // namespace
}  // namespace tandem::markup_test
