// The test's own judge of markup.

#include "tests/tools/report/well_formed.h"

#include <gtest/gtest.h>

namespace tandem::well_formed_test {
namespace {

TEST(MarkupErrorTest, TakesWhatIsWellFormed) {
  EXPECT_EQ(MarkupError("<a/>"), "");
  EXPECT_EQ(MarkupError("<!DOCTYPE html>\n<a b=\"c &lt;\" d=\"\"><e/>f\n</a>"),
            "");
}

TEST(MarkupErrorTest, NamesWhatIsNot) {
  for (const char* text :
       {"", "a", "<a>", "</a>", "<a></b>", "<a><b></a></b>", "<a/><b/>",
        "<a>&</a>", "<a>&nbsp;</a>", "<a>\x01</a>", "<a b>", "<a b=c/>",
        "<a b=\"<\"/>", "<a b=\"\" b=\"\"/>", "<a b=\"/>", "<a", "< a/>"}) {
    EXPECT_NE(MarkupError(text), "") << text;
  }
}

}  // namespace
}  // namespace tandem::well_formed_test
