#include "tools/bench/comparison/flags.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"

ABSL_DECLARE_FLAG(std::string, python);
ABSL_DECLARE_FLAG(int, threads);
ABSL_DECLARE_FLAG(int, steps);
ABSL_DECLARE_FLAG(std::string, json);

namespace tandem::flags_test {
namespace {

TEST(ComparisonFlags, BecomeOptions) {
  absl::SetFlag(&FLAGS_python, "/no/such/python");
  absl::SetFlag(&FLAGS_threads, 2);
  absl::SetFlag(&FLAGS_steps, 5);
  const auto options = OptionsFromFlags(/*rounds=*/3);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->threads, 2);
  EXPECT_EQ(options->steps, 5);
  EXPECT_EQ(options->rounds, 3);
  EXPECT_EQ(options->python.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OptionsFromFlags(/*rounds=*/0).status(),
            absl::InvalidArgumentError("--rounds=0: expected at least 1"));
}

TEST(ComparisonFlags, SayWhereFiguresGo) {
  EXPECT_TRUE(WriteFigures({{"a", 1}}).ok());  // nowhere
  const std::string path = testing::TempDir() + "/figures.json";
  absl::SetFlag(&FLAGS_json, path);
  ASSERT_TRUE(WriteFigures({{"a", 1}}).ok());
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file), nlohmann::json({{"a", 1}}));
}

}  // namespace
}  // namespace tandem::flags_test
