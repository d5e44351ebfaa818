#include "parallel/ddp/ready_marks.h"

#include "core/testing/statuses.h"
#include "gtest/gtest.h"

namespace tandem::ready_marks_test {
namespace {

using testing::Test;
using Positions = std::vector<int64_t>;

// Position 1 is not trained.
ReadyMarks Marks(bool static_graph) {
  return ReadyMarks({"a", "", "b", "c"}, static_graph);
}

TEST(ReadyMarks, OneMarkMakesReadyASecondIsNamed) {
  ReadyMarks marks = Marks(false);
  for (int step = 0; step < 2; ++step) {
    marks.Reset();
    EXPECT_EQ(marks.Unmarked(), (Positions{0, 2, 3}));
    EXPECT_TRUE(marks.Mark(2).value());
    EXPECT_TRUE(marks.Mark(0).value());
    EXPECT_EQ(marks.Unmarked(), (Positions{3}));
    EXPECT_THAT(
        marks.CheckAllMarked(),
        InvalidArgument(
            "a parameter got no gradient in this backward: c (index 3). "));
    EXPECT_TRUE(marks.Mark(3).value());
    EXPECT_TRUE(marks.CheckAllMarked().ok());
    EXPECT_EQ(marks.Order(), (Positions{2, 0, 3}));
    EXPECT_THAT(marks.Mark(0).status(),
                InvalidArgument("parameter a was marked ready twice"));
  }
}

TEST(ReadyMarks, UnmarkedComeLastReversed) {
  ReadyMarks marks = Marks(false);
  EXPECT_EQ(marks.Order(), (Positions{3, 2, 0}));
  ASSERT_TRUE(marks.Mark(0).ok());
  EXPECT_EQ(marks.Order(), (Positions{0, 3, 2}));
  EXPECT_THAT(marks.CheckAllMarked(),
              InvalidArgument("parameters got no gradient in this "
                              "backward: b (index 2), c (index 3). "));
}

TEST(ReadyMarks, StaticGraphCountsAsTheFirstBackwardDid) {
  ReadyMarks marks = Marks(true);
  EXPECT_TRUE(marks.learning());
  EXPECT_FALSE(marks.Mark(0).value());
  EXPECT_FALSE(marks.Mark(2).value());
  EXPECT_FALSE(marks.Mark(0).value());
  EXPECT_EQ(marks.Order(), (Positions{2, 0, 3}));  // by the last mark
  marks.Learn();
  EXPECT_FALSE(marks.learning());
  EXPECT_FALSE(marks.expects(3));
  marks.Reset();
  EXPECT_FALSE(marks.Mark(0).value());
  EXPECT_THAT(marks.CheckUnchanged(),
              InvalidArgument("in this one: a (index 0), b (index 2). "));
  EXPECT_TRUE(marks.Mark(0).value());
  EXPECT_TRUE(marks.Mark(2).value());
  EXPECT_TRUE(marks.CheckUnchanged().ok());
  EXPECT_THAT(
      marks.Mark(2).status(),
      InvalidArgument(
          "the gradient of b was ready 2 times in this backward and 1 times "
          "in the first"));
  EXPECT_THAT(marks.Mark(3).status(),
              InvalidArgument("graph changed under static_graph"));
}

TEST(ReadyMarks, WhatIsRetiredMustStayAway) {
  ReadyMarks marks = Marks(false);
  marks.Retire(2);
  ASSERT_TRUE(marks.Mark(0).ok());
  ASSERT_TRUE(marks.Mark(3).ok());
  EXPECT_TRUE(marks.CheckAllMarked().ok());
  EXPECT_THAT(marks.Mark(2).status(),
              InvalidArgument("skip_all_reduce_unused_params"));
}

// Others have learned their graphs; this rank's comes later.
TEST(ReadyMarks, WhatIsRetiredIsInNoGraphThatIsLearnedLater) {
  ReadyMarks marks = Marks(true);
  marks.Retire(2);
  marks.Reset();
  EXPECT_FALSE(marks.Mark(0).value());
  EXPECT_THAT(marks.Mark(2).status(),
              InvalidArgument("graph changed under static_graph"));
}

TEST(ReadyMarks, LongListsAreCut) {
  ReadyMarks marks(std::vector<std::string>(25, "p"), false);
  EXPECT_THAT(marks.CheckAllMarked(), InvalidArgument(" and 5 more. "));
}

}  // namespace
}  // namespace tandem::ready_marks_test
