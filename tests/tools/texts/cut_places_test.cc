#include "tools/texts/cut_places.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::cut_places_test {
namespace {

using ::testing::ElementsAre;

constexpr char kText[] = "ab\n\ncd ef\tg\r\nh\ni";

TEST(CutPlacesTest, TheBestKindComesFirst) {
  EXPECT_THAT(CutPlaces(kText, 0, 100, 100),
              ElementsAre(4, 13, 15,      // a line begins
                          3,              // an empty one does
                          2, 11, 14,      // a line ends
                          6, 9,           // other white space
                          1, 5, 7, 8, 10  // and the rest
                          ));
}

TEST(CutPlacesTest, BetweenBoundsAndSoManyOfAKind) {
  EXPECT_THAT(CutPlaces(kText, 5, 9, 1), ElementsAre(6, 5));
  EXPECT_THAT(CutPlaces(kText, 4, 4, 9), ElementsAre(4));
  EXPECT_THAT(CutPlaces(kText, 12, 12, 9), ElementsAre());  // CR | LF
  EXPECT_THAT(CutPlaces(kText, 16, 99, 9), ElementsAre());
  EXPECT_THAT(CutPlaces("", 0, 9, 9), ElementsAre());
  EXPECT_THAT(CutPlaces("a", 0, 9, 9), ElementsAre());
}

TEST(CutPlacesTest, NeverWithinACharacter) {
  EXPECT_THAT(CutPlaces("\u00e9\u4f60\U0001F600x", 0, 99, 99),
              ElementsAre(2, 5, 9));
  EXPECT_THAT(CutPlaces(std::string(9, '\x80'), 0, 99, 99), ElementsAre());
}

}  // namespace
}  // namespace tandem::cut_places_test
