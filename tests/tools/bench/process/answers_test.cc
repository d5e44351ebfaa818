#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/bench/process/side.h"

namespace tandem::answers_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;

TEST(Answers, AreTakenTogether) {
  const std::vector<json> answers = {{{"ms", 2.0}, {"losses", {0.0, 0.0}}},
                                     {{"ms", 4.0}, {"losses", {5.0, 6.0}}}};
  EXPECT_EQ(Greatest(answers, "ms"), 4);
  EXPECT_EQ(Mean(answers, "ms"), 3);
  EXPECT_THAT(SumOfLists(answers, "losses"), ElementsAre(5, 6));
}

}  // namespace
}  // namespace tandem::answers_test
