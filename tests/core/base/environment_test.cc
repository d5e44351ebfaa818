#include "core/base/environment.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EnvironmentTest, EmptyCountsAsNotSet) {
  const Environment env({{"A", ""}, {"B", "b"}});
  EXPECT_EQ(env.Get("A"), std::nullopt);
  EXPECT_EQ(env.Get("B"), "b");
  EXPECT_EQ(env.Get("C"), std::nullopt);
}

TEST(EnvironmentTest, IntegersAreParsedOrTheErrorNamesVariableAndText) {
  const Environment env({{"A", "-3"}, {"B", "3x"}, {"C", "99999999999"}});
  EXPECT_EQ(*env.GetInt("A"), -3);
  EXPECT_EQ(*env.GetInt("none"), std::nullopt);
  const absl::Status error = env.GetInt("B").status();
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("B='3x'"));
  EXPECT_THAT(env.GetInt("C").status().message(),
              HasSubstr("at most 2147483647"));
}

TEST(EnvironmentTest, ReadsTheProcess) {
  setenv("TANDEM_ENVIRONMENT_TEST", "x=y", 1);
  const Environment env = Environment::OfProcess();
  EXPECT_EQ(env.Get("TANDEM_ENVIRONMENT_TEST"), "x=y");
  EXPECT_THAT(env.ToStrings(), Contains("TANDEM_ENVIRONMENT_TEST=x=y"));
}

TEST(EnvironmentTest, ParsesText) {
  const auto env = Environment::Parse("# comment\nB=2=3\n\nA=\n");
  ASSERT_TRUE(env.ok());
  EXPECT_THAT(env->ToStrings(), ElementsAre("A=", "B=2=3"));
  EXPECT_FALSE(Environment::Parse("no equals").ok());
  EXPECT_FALSE(Environment::Parse("=value").ok());
}

TEST(EnvironmentTest, SetReplaces) {
  Environment env;
  env.Set("A", "1");
  env.Set("A", "2");
  EXPECT_THAT(env.ToStrings(), ElementsAre("A=2"));
}

}  // namespace
}  // namespace tandem
