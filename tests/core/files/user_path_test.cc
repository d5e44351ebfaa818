#include "core/files/user_path.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tandem {
namespace {

TEST(UserPathTest, ARelativePathIsTakenFromWhereTheUserStands) {
  setenv("BUILD_WORKING_DIRECTORY", "/home/me", 1);
  EXPECT_EQ(UserPath("runs/1"), "/home/me/runs/1");
  EXPECT_EQ(UserPath("../data"), "/home/me/../data");
  EXPECT_EQ(UserPath("."), "/home/me/.");
  setenv("BUILD_WORKING_DIRECTORY", "/", 1);
  EXPECT_EQ(UserPath("runs"), "/runs");
}

TEST(UserPathTest, OtherPathsStayAsTheyAre) {
  setenv("BUILD_WORKING_DIRECTORY", "/home/me", 1);
  EXPECT_EQ(UserPath("/tmp/x"), "/tmp/x");
  EXPECT_EQ(UserPath("~you/x"), "~you/x");
  EXPECT_EQ(UserPath(""), "");
}

TEST(UserPathTest, ALeadingTildeIsHome) {
  setenv("BUILD_WORKING_DIRECTORY", "/somewhere", 1);
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(UserPath("~/x"), "/home/me/x");
  EXPECT_EQ(UserPath("~/"), "/home/me/");
  EXPECT_EQ(UserPath("~"), "/home/me");
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(UserPath("~/x"), "/home/me/x");
  setenv("HOME", "/", 1);
  EXPECT_EQ(UserPath("~/x"), "/x");
  EXPECT_EQ(UserPath("~"), "/");
  unsetenv("HOME");
  EXPECT_EQ(UserPath("~/x"), "~/x");
  EXPECT_EQ(UserPath("~"), "~");
}

TEST(UserPathTest, WithoutBazelRunEveryPathStays) {
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(UserPath("runs/1"), "runs/1");
  setenv("BUILD_WORKING_DIRECTORY", "", 1);
  EXPECT_EQ(UserPath("runs/1"), "runs/1");
}

}  // namespace
}  // namespace tandem
