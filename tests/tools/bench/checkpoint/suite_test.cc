#include "tools/bench/checkpoint/suite.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace tandem::suite_test {
namespace {

// 1 MB in 125 ms and in 400 ms.
CheckpointResult Result() {
  CheckpointResult result;
  result.state = "many";
  result.operation = "save";
  result.bytes = 1000000;
  result.ours_ms = {100, 200, 125};
  result.peer_ms = {500, 400, 250};
  return result;
}

TEST(CheckpointTablesTest, HaveMediansMegabytesASecondAndTheirRatio) {
  const nlohmann::json figures = TablesJson(CheckpointTables({Result()}));
  EXPECT_EQ(figures["cases"][0], (nlohmann::json{{"state", "many"},
                                                 {"operation", "save"},
                                                 {"bytes", 1000000},
                                                 {"ours_ms", 125.0},
                                                 {"ours_mb_per_s", 8.0},
                                                 {"peer_ms", 400.0},
                                                 {"peer_mb_per_s", 2.5},
                                                 {"ratio", 3.2},
                                                 {"ratio_min", 2.0},
                                                 {"ratio_max", 5.0}}));
}

TEST(RunCheckpointSuiteTest, RefusesAStateThatIsTooSmall) {
  BenchFlags flags;
  flags.megabytes = 15;
  EXPECT_EQ(RunCheckpointSuite(flags, "").status(),
            absl::InvalidArgumentError("--megabytes=15: expected at least 16"));
  flags.rounds = 0;
  EXPECT_EQ(RunCheckpointSuite(flags, "").status(),
            absl::InvalidArgumentError("--rounds=0: expected at least 1"));
}

}  // namespace
}  // namespace tandem::suite_test
