#include "parallel/schedule/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace tandem {
namespace {

TEST(ScheduleChoice, ChunksFollowTheSchedule) {
  EXPECT_EQ(UsualChunks("1f1b"), 1);
  EXPECT_EQ(UsualChunks("looped_bfs"), 2);
  EXPECT_EQ(UsualChunks("interleaved_1f1b", 4), 2);
  EXPECT_EQ(UsualChunks("interleaved_1f1b", 3), 1);
  EXPECT_EQ(UsualChunks("zb_v", 3), 2);  // which zb_v then refuses
  EXPECT_EQ(UsualChunks("gpipe", 4), 1);
}

TEST(ScheduleChoice, ReadsFiles) {
  EXPECT_TRUE(IsScheduleFile("./mine"));
  EXPECT_FALSE(IsScheduleFile("1f1b"));
  const std::string path = testing::TempDir() + "/schedule.txt";
  std::ofstream(path) << "F0 B0\nF0 B0\n";
  const auto schedule = ReadScheduleFile(path);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->stages, 2);
  const auto missing = ReadScheduleFile("/no/such/file");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()),
              testing::HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace tandem
