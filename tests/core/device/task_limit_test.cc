#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/device/host_resources.h"

namespace tandem::task_limit_test {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream(path) << text << "\n";
}

TEST(TaskLimitTest, TheGroupWithTheFewestLeftDecides) {
  const std::string root = ::testing::TempDir() + "/tasks";
  const ControlGroups groups = {root, root + "/membership"};
  EXPECT_EQ(TasksLeft(groups), kNoTaskLimit);
  Write(groups.membership, "8:pids:/v1\n0::/a/b");
  Write(root + "/a/pids.max", "100");
  Write(root + "/a/pids.current", "90");
  Write(root + "/a/b/pids.max", "max");
  Write(root + "/a/b/pids.current", "5");
  EXPECT_EQ(TasksLeft(groups), 10u);
  Write(root + "/pids/v1/pids.max", "8");
  Write(root + "/pids/v1/pids.current", "6");
  EXPECT_EQ(TasksLeft(groups), 2u);
  Write(root + "/pids/v1/pids.current", "9");  // lowered meanwhile
  EXPECT_EQ(TasksLeft(groups), 0u);
}

}  // namespace
}  // namespace tandem::task_limit_test
