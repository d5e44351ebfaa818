#include "tools/bench/checkpoint/report.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::report_test {
namespace {

using ::testing::HasSubstr;

CheckpointResult Result() {
  CheckpointResult result;
  result.state = "many";
  result.operation = "save";
  result.bytes = 1000000;
  result.ours_ms = {100, 200, 125};
  result.peer_ms = {500, 400, 250};
  return result;
}

// 1 MB in 125 ms and in 400 ms.
TEST(ReportTest, ATableHasTimesMegabytesASecondAndTheirRatio) {
  const std::string table = CheckpointTable({Result()});
  EXPECT_THAT(table,
              HasSubstr("many   save       125.0     8      400.0         2"));
  EXPECT_THAT(table, HasSubstr("3.20  2.00 to 5.00"));
}

TEST(ReportTest, FiguresAreMedians) {
  const nlohmann::json figures = CheckpointJson({Result()});
  const nlohmann::json& first = figures["cases"][0];
  EXPECT_EQ(first["state"], "many");
  EXPECT_EQ(first["operation"], "save");
  EXPECT_EQ(first["bytes"], 1000000);
  EXPECT_EQ(first["ours_ms"], 125);
  EXPECT_EQ(first["peer_ms"], 400);
  EXPECT_EQ(first["ratio"], 3.2);
  EXPECT_EQ(first["ratio_min"], 2);
}

}  // namespace
}  // namespace tandem::report_test
