#include "core/base/text_table.h"

#include <gtest/gtest.h>

namespace tandem::text_table_test {
namespace {

TEST(TextTable, AlignsNumbersRightAndWordsLeft) {
  EXPECT_EQ(TextTable({{"layer", "bytes", "type"},
                       {"fc1", "12 B", "Linear"},
                       {"a", "1024 B"},
                       {"conv2", "", "x"}}),
            "layer   bytes  type\n"
            "fc1      12 B  Linear\n"
            "a      1024 B\n"
            "conv2          x\n");
}

TEST(TextTable, NumbersMayBeNegative) {
  EXPECT_EQ(
      TextTable(
          {{"cost", "flag"}, {"-2.5 %", "-x"}, {"11.0 %", "1"}, {"-", ""}}),
      "  cost  flag\n"
      "-2.5 %  -x\n"
      "11.0 %  1\n"
      "     -\n");
}

TEST(TextTable, NamesMayBeginWithDigits) {
  EXPECT_EQ(TextTable({{"layout", "ms"}, {"2x1", "5,000"}, {"12x1", "7"}}),
            "layout     ms\n"
            "2x1     5,000\n"
            "12x1        7\n");
}

TEST(TextTable, OfNothing) {
  EXPECT_EQ(TextTable({}), "");
  EXPECT_EQ(TextTable({{}}), "\n");
  EXPECT_EQ(TextTable({{"one"}}), "one\n");
}

}  // namespace
}  // namespace tandem::text_table_test
