#include "core/program/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "tests/core/testing/test_files.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Each in a process of its own, as glog belongs to the process.
class LoggingDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  const std::string directory_ =
      ::testing::TempDir() + "/logs/of/" +
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(LoggingDeathTest, EveryRankHasItsFileWithItsRankInThePrefix) {
  EXPECT_EXIT(
      {
        LoggingOptions options;
        options.rank = 3;
        options.log_dir = directory_;
        if (!InitLogging("/usr/bin/train", options).ok()) exit(1);
        LOG(INFO) << "quiet";
        LOG(WARNING) << "loud";
        ShutdownLogging();
        exit(0);
      },
      ::testing::ExitedWithCode(0), "rank 3 thread .*loud");
  const std::string text = ReadBytes(directory_ + "/train.rank-3.log");
  EXPECT_THAT(text, ContainsRegex("I[0-9]+ [0-9:.]+ rank 3 thread [0-9]+ "
                                  "logging_test.cc:[0-9]+\\] quiet"));
  EXPECT_THAT(text, HasSubstr("] loud"));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    (void)entry;
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(LoggingDeathTest, ALauncherHasNoRank) {
  EXPECT_EXIT(
      {
        LoggingOptions options;
        options.rank = kLauncherLogs;
        if (!InitLogging("train", options).ok()) exit(1);
        LOG(WARNING) << "loud";
        exit(0);
      },
      ::testing::ExitedWithCode(0), "^W[0-9: .]+ launcher thread .*\\] loud");
}

TEST_F(LoggingDeathTest, ARestartedRankAppends) {
  for (const char* word : {"first", "second"}) {
    EXPECT_EXIT(
        {
          LoggingOptions options;
          options.log_dir = directory_;
          if (!InitLogging("train", options).ok()) exit(1);
          LOG(INFO) << word;
          _exit(0);  // nothing is flushed: it must be in the file already
        },
        ::testing::ExitedWithCode(0), "");
  }
  EXPECT_THAT(ReadBytes(LogFilePath(directory_, "train", 0)),
              AllOf(HasSubstr("first"), HasSubstr("second")));
}

TEST_F(LoggingDeathTest, AFullDiskIsToldOnceAndEndsNothing) {
  std::filesystem::create_directories(directory_);
  std::error_code there;  // in the child, which begins anew
  std::filesystem::create_symlink("/dev/full",
                                  LogFilePath(directory_, "train", 0), there);
  const auto log = [this] {
    LoggingOptions options;
    options.log_dir = directory_;
    if (!InitLogging("train", options).ok()) exit(1);
    LOG(INFO) << "unseen";
    LOG(INFO) << "unseen, too";
    std::fprintf(stderr, "goes on\n");
    exit(0);
  };
  EXPECT_EXIT(log(), ::testing::ExitedWithCode(0),
              "^train: cannot write .*/train.rank-0.log: No space left on "
              "device; nothing more is logged there\ngoes on\n$");
}

TEST_F(LoggingDeathTest, TheThresholdKeepsStderrQuiet) {
  EXPECT_EXIT(
      {
        LoggingOptions options;
        options.stderr_threshold = google::ERROR;
        if (!InitLogging("train", options).ok()) exit(1);
        LOG(WARNING) << "unheard";
        LOG(ERROR) << "heard";
        exit(0);
      },
      ::testing::ExitedWithCode(0),
      AllOf(HasSubstr("heard"), Not(HasSubstr("unheard"))));
}

TEST_F(LoggingDeathTest, ItStartsOnce) {
  EXPECT_EXIT(
      {
        const bool first = InitLogging("train", {}).ok();
        const absl::Status again = InitLogging("train", {});
        std::fprintf(stderr, "%s", again.ToString().c_str());
        exit(first && !again.ok() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "FAILED_PRECONDITION");
}

TEST_F(LoggingDeathTest, ADirectoryThatCannotBeIsAnErrorThatNamesIt) {
  const std::string file = ::testing::TempDir() + "/a_file";
  std::ofstream(file) << "here";
  LoggingOptions options;
  options.log_dir = file + "/logs";
  EXPECT_THAT(
      InitLogging("train", options).ToString(),
      AllOf(HasSubstr("log folder " + file), HasSubstr("Not a directory")));
  std::filesystem::create_directories(directory_ + "/train.rank-0.log");
  options.log_dir = directory_;
  EXPECT_THAT(InitLogging("train", options).ToString(),
              AllOf(HasSubstr("cannot write"), HasSubstr("train.rank-0.log")));
}

}  // namespace
}  // namespace tandem
