#include "tools/bench/process/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/testing/statuses.h"

namespace tandem::program_test {
namespace {

using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

TEST(BenchProgram, FlagsAreCheckedByName) {
  EXPECT_TRUE(CheckAtLeast("rounds", 1, 1).ok());
  EXPECT_EQ(CheckAtLeast("rounds", 0, 1),
            absl::InvalidArgumentError("--rounds=0: expected at least 1"));
  EXPECT_TRUE(CheckAmong("peers", {}, {"eager"}).ok());
  EXPECT_TRUE(CheckAmong("peers", {"b", "a"}, {"a", "b"}).ok());
  EXPECT_EQ(CheckAmong("peers", {"a", "c"}, {"a", "b"}),
            absl::InvalidArgumentError("--peers: 'c': expected one of a, b"));
}

TEST(BenchProgram, APythonThatIsNotThereIsNamed) {
  EXPECT_THAT(PythonFromFlag("/no/such/python").status(),
              Says("/no/such/python"));
}

TEST(BenchProgram, ACaseHasAFolderOfItsOwn) {
  const auto folder = FolderFor("case", testing::TempDir());
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_TRUE(std::filesystem::is_directory(*folder));
  EXPECT_EQ(*FolderFor("case", testing::TempDir()), *folder);
  EXPECT_THAT(FolderFor("case", "/no/such").status(),
              Says("making /no/such/case: "));
}

TEST(BenchProgram, FiguresGoToTheFileThatIsAsked) {
  EXPECT_TRUE(WriteJson("", {{"a", 1}}).ok());
  const std::string path = testing::TempDir() + "/figures.json";
  ASSERT_TRUE(WriteJson(path, {{"a", 1}}).ok());
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file), nlohmann::json({{"a", 1}}));
  EXPECT_FALSE(WriteJson("/no/such/folder/figures.json", {}).ok());
}

// The command line can be parsed once in a process: one program each.
int RunWith(std::vector<std::string> words, const absl::Status& status,
            std::string* folder) {
  words.insert(words.begin(), "some_bench");
  std::vector<char*> argv;
  for (std::string& each : words) argv.push_back(each.data());
  return RunBenchProgram("some_bench", "Usage.", static_cast<int>(argv.size()),
                         argv.data(), [&](const std::string& path) {
                           EXPECT_TRUE(std::filesystem::is_directory(path));
                           *folder = path;
                           return status;
                         });
}

TEST(BenchProgram, ItsFolderGoesWithIt) {
  std::string folder;
  EXPECT_EQ(RunWith({}, absl::OkStatus(), &folder), 0);
  EXPECT_THAT(folder, HasSubstr("some_bench"));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(BenchProgram, AnErrorIsWrittenAndIsTheExit) {
  std::string folder;
  CaptureStderr();
  EXPECT_EQ(RunWith({}, absl::UnavailableError("no peer"), &folder), 1);
  EXPECT_EQ(GetCapturedStderr(), "some_bench: no peer\n");
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(BenchProgram, WhatTheMachineCannotIsRefused) {
  std::string folder;
  CaptureStderr();
  EXPECT_EQ(RunWith({}, absl::FailedPreconditionError("no GPU"), &folder), 2);
  EXPECT_EQ(GetCapturedStderr(), "some_bench: no GPU\n");
}

TEST(BenchProgram, AllWordsMustBeFlags) {
  std::string folder;
  CaptureStderr();
  EXPECT_EQ(RunWith({"word"}, absl::OkStatus(), &folder), 2);
  EXPECT_EQ(GetCapturedStderr(), "some_bench: 'word' is no flag\n");
  EXPECT_EQ(folder, "");
}

// Ended by a signal in the midst of its work, when it has said where its folder
// is.
void EndInTheMidst(int signal_number, const std::string& told) {
  std::string name = "some_bench";
  char* argv[] = {name.data(), nullptr};
  RunBenchProgram("some_bench", "Usage.", 1, argv,
                  [&](const std::string& path) -> absl::Status {
                    std::filesystem::create_directory(path + "/saves");
                    std::ofstream(path + "/saves/values") << "1";
                    std::ofstream(told) << path;
                    kill(getpid(), signal_number);
                    while (true) pause();
                  });
}

TEST(BenchProgramDeathTest, ItsFolderGoesWithASignalToo) {
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string told = testing::TempDir() + "/told";
    EXPECT_EXIT(EndInTheMidst(each, told), testing::KilledBySignal(each), "");
    std::ifstream file(told);
    std::string folder;
    std::getline(file, folder);
    EXPECT_THAT(folder, HasSubstr("some_bench"));
    EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
    std::filesystem::remove(told);
  }
}

}  // namespace
}  // namespace tandem::program_test
