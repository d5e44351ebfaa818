#include "parallel/schedule/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "core/testing/statuses.h"

namespace tandem::choice_test {
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
  EXPECT_THAT(missing.status(),
              StatusIs(absl::StatusCode::kNotFound, "/no/such/file"));
}

// A device has no end.
TEST(ScheduleChoice, ReadsNothingButFiles) {
  const std::string pipe = testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path :
       {std::string("/dev/zero"), pipe, testing::TempDir() + "/"}) {
    const absl::Status status = ReadScheduleFile(path).status();
    EXPECT_THAT(status, InvalidArgument(path + " is no regular file"));
  }
  const std::string large = testing::TempDir() + "/large.txt";
  std::ofstream(large) << "F0 B0\n";
  ASSERT_EQ(truncate(large.c_str(), off_t{1} << 40), 0);
  EXPECT_THAT(ReadScheduleFile(large).status(), Says("a schedule at most"));
}

}  // namespace
}  // namespace tandem::choice_test
