#include "core/flight/dump_file.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "core/flight/recorder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/forked_rank.h"
#include "tests/core/testing/test_files.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

bool asks_at_the_very_end = false;

// After all static objects are destroyed.
__attribute__((destructor)) void AskAtTheVeryEnd() {
  if (!asks_at_the_very_end) return;
  kill(getpid(), SIGUSR2);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

std::string NewFolder(const std::string& name) {
  return ::testing::TempDir() + "/" + name + std::to_string(getpid());
}

FlightJob Job(const std::string& folder) {
  FlightJob job;
  job.rank = 2;
  job.world_size = 3;
  job.id = "id";
  job.folder = folder;
  return job;
}

absl::StatusOr<FlightDump> ReadBack(const std::string& folder) {
  return DecodeFlightDump(ReadBytes(FlightDumpPath(folder, 2)));
}

void NoteSomething() {
  FlightOperation operation;
  operation.kind = FlightKind::kAction;
  operation.name = "forward";
  FlightRecorder::OfProcess().Schedule(nullptr, operation);
}

TEST(DumpFileTest, NobodyIsToldWhere) {
  EXPECT_EQ(DumpFlight(FlightTrigger::kSignal, "asked").status().code(),
            absl::StatusCode::kFailedPrecondition);
  DumpFlightOfFailure(FlightTrigger::kTimeout, "late");  // does nothing
}

TEST(DumpFileTest, IsWrittenAnewUntilAFailure) {
  const std::string folder = NewFolder("dumps") + "/made/here";
  SetFlightJob(Job(folder));
  NoteSomething();
  ASSERT_TRUE(DumpFlight(FlightTrigger::kSignal, "first").ok());
  ASSERT_TRUE(DumpFlight(FlightTrigger::kSignal, "second").ok());
  EXPECT_EQ(ReadBack(folder)->reason, "second");
  EXPECT_EQ(ReadBack(folder)->entries.back().operation, "forward");
  DumpFlightOfFailure(FlightTrigger::kTimeout, "third");
  DumpFlightOfFailure(FlightTrigger::kFailed, "a consequence");
  EXPECT_EQ(*DumpFlight(FlightTrigger::kSignal, "asked"),
            FlightDumpPath(folder, 2));
  const absl::StatusOr<FlightDump> dump = ReadBack(folder);
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->reason, "third");
  EXPECT_EQ(dump->trigger, FlightTrigger::kTimeout);
  EXPECT_EQ(dump->rank, 2);
  EXPECT_EQ(dump->world_size, 3);
  EXPECT_EQ(dump->job, "id");
  EXPECT_EQ(dump->pid, getpid());
}

TEST(DumpFileTest, AFolderAmongOthersFilesIsThisUsersAlone) {
  FlightJob job = Job(NewFolder("private"));
  job.is_private = true;
  SetFlightJob(job);
  ASSERT_TRUE(DumpFlight(FlightTrigger::kSignal, "").ok());
  struct stat found = {};
  ASSERT_EQ(stat(job.folder.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
  // A link could lead anywhere.
  const std::string link = job.folder + ".link";
  ASSERT_EQ(symlink(job.folder.c_str(), link.c_str()), 0);
  job.folder = link;
  SetFlightJob(job);
  EXPECT_EQ(DumpFlight(FlightTrigger::kSignal, "").status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(DumpFileTest, FoldersOfJobsLongAgoGo) {
  namespace fs = std::filesystem;
  const std::string kind = NewFolder("dumps_of");
  const std::string old = kind + "-0001";
  const std::string recent = kind + "-0002";
  const std::string other = kind + "s-0003";
  for (const std::string& each : {old, recent, other}) {
    fs::create_directories(each);
    std::ofstream(each + "/rank_0.json") << "{}";
  }
  const auto long_ago =
      fs::file_time_type::clock::now() - std::chrono::hours(8 * 24);
  fs::last_write_time(old, long_ago);
  fs::last_write_time(other, long_ago);
  FlightJob job = Job(kind + "-0004");
  job.is_private = true;
  SetFlightJob(job);
  ASSERT_TRUE(DumpFlight(FlightTrigger::kSignal, "").ok());
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(recent));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(job.folder));
}

TEST(DumpFileTest, AFolderThatCannotBeMadeIsNamed) {
  SetFlightJob(Job("/proc/none"));
  const absl::Status status = DumpFlight(FlightTrigger::kSignal, "").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("/proc/none"));
}

TEST(FlightSignalsTest, OneAsksForADump) {
  const std::string folder = NewFolder("asked");
  const int status = StatusOfChild([&] {
    SetFlightJob(Job(folder));
    NoteSomething();
    HandleFlightSignals();
    kill(getpid(), SIGUSR2);
    while (!ReadBack(folder).ok()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(ReadBack(folder)->trigger, FlightTrigger::kSignal);
  EXPECT_THAT(ReadBack(folder)->reason, HasSubstr("SIGUSR2"));
}

// A launcher that stops its ranks asks each for a dump, also one that is about
// to end: by then glog has ended.
TEST(FlightSignalsTest, OneThatComesTooLateEndsNoProcess) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    SetFlightJob(Job(NewFolder("late")));
    HandleFlightSignals();
    asks_at_the_very_end = true;
    exit(7);
  }
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(FlightSignalsTest, DeathLeavesADump) {
  for (const int signal_number : {SIGSEGV, SIGABRT, SIGFPE}) {
    const std::string folder = NewFolder(strsignal(signal_number));
    const int status = StatusOfChild([&] {
      // A sanitizer's handler would end the process in its own way.
      signal(signal_number, SIG_DFL);
      SetFlightJob(Job(folder));
      NoteSomething();
      HandleFlightSignals();
      if (signal_number == SIGABRT) abort();
      raise(signal_number);
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), signal_number);
    const absl::StatusOr<FlightDump> dump = ReadBack(folder);
    ASSERT_TRUE(dump.ok()) << dump.status();
    EXPECT_EQ(dump->trigger, FlightTrigger::kDied);
  }
}

}  // namespace
}  // namespace tandem
