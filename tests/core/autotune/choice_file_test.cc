#include "core/autotune/choice_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

namespace tandem::choice_file_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::string NewPath(const std::string& name) {
  return testing::TempDir() + "/" + name + std::to_string(getpid()) +
         "/a/b/kernels";
}

std::unique_ptr<ChoiceFile> Opened(const std::string& path) {
  auto file = ChoiceFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::string Find(ChoiceFile& file, const std::string& key,
                 const std::string& choice) {
  const auto found = file.FindOr(
      key, [](const std::string& name) { return name != "unknown"; },
      [&] { return choice; });
  EXPECT_TRUE(found.ok()) << found.status();
  return found.value_or("");
}

TEST(ChoiceFileTest, TheFirstChoiceStays) {
  const std::string path = NewPath("stays");
  EXPECT_EQ(Find(*Opened(path), "1 x 2", "mkl"), "mkl");
  EXPECT_EQ(Find(*Opened(path), "1 x 2", "onednn"), "mkl");
  EXPECT_EQ(Find(*Opened(path), "1 x 3", "onednn"), "onednn");
  EXPECT_THAT(*Opened(path)->Read(),
              ElementsAre(Pair("1 x 2", "mkl"), Pair("1 x 3", "onednn")));
}

TEST(ChoiceFileTest, WhatNobodyKnowsIsChosenAnew) {
  const std::string path = NewPath("unknown");
  const auto file = Opened(path);
  Write(path, "key\tunknown\n");
  EXPECT_EQ(Find(*file, "key", "mkl"), "mkl");
  EXPECT_EQ(Find(*Opened(path), "key", "onednn"), "mkl");
}

TEST(ChoiceFileTest, DamageIsPassedOver) {
  const std::string path = NewPath("damage");
  const auto file = Opened(path);
  Write(path, std::string("\n\t\n\tmkl\nkey\t\nno tab\na\tb\tc\n") + '\0' +
                  "\t\ngood\tmkl\ncut\tone");
  EXPECT_EQ(Find(*file, "good", "onednn"), "mkl");
  EXPECT_EQ(Find(*file, "next", "mkl"), "mkl");
  // The line that lacked its end stands by itself.
  EXPECT_EQ(file->Read()->at("cut"), "one");
  EXPECT_EQ(file->Read()->at("next"), "mkl");
}

TEST(ChoiceFileTest, AFileTooLargeToBeOursIsRefused) {
  const std::string path = NewPath("large");
  const auto file = Opened(path);
  Write(path, std::string((4 << 20) + 1, 'x'));
  EXPECT_EQ(file->Read().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(file->Read().status().message()), HasSubstr(path));
}

TEST(ChoiceFileTest, ErrorsNameThePath) {
  const std::string folder = NewPath("folder");
  Opened(folder + "/file");
  for (const auto& [path, named] :
       std::vector<std::pair<std::string, std::string>>{
           {folder, folder},
           {"/dev/null", "/dev/null"},
           {folder + "/file/below", folder + "/file"}}) {
    const auto file = ChoiceFile::Open(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(named));
  }
}

// All of them ask for the same keys at the same time.
TEST(ChoiceFileTest, OneAsksAndTheOthersWait) {
  const std::string path = NewPath("threads");
  std::atomic<int> asked{0};
  std::vector<std::string> found(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      // A file of its own each, as processes have them.
      const auto file = Opened(path);
      for (int key = 0; key < 20; ++key) {
        const auto its = file->FindOr(
            std::to_string(key), [](const std::string&) { return true; },
            [&] {
              ++asked;
              return std::to_string(i);
            });
        found[i] += its.value_or("?");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(asked, 20);
  for (const std::string& its : found) EXPECT_EQ(its, found[0]);
}

TEST(ChoiceFileTest, AWaitForALockEnds) {
  const std::string path = NewPath("locked");
  const auto file = Opened(path);
  const int other = open(path.c_str(), O_RDWR);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  const auto found = file->FindOr(
      "key", [](const std::string&) { return true; }, [] { return "mkl"; },
      std::chrono::milliseconds(20));
  EXPECT_EQ(found.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(found.status().message()),
              HasSubstr("locked " + path + " for 20ms"));
  close(other);
  EXPECT_EQ(Find(*file, "key", "mkl"), "mkl");
}

TEST(ChoiceFileTest, TheUsersCacheIsTheUsualPlace) {
  const auto path = [](std::map<std::string, std::string> variables) {
    return ChoiceFile::DefaultPath(Environment(std::move(variables)));
  };
  EXPECT_EQ(path({{"HOME", "/home/me"}}), "/home/me/.cache/tandem/kernels");
  EXPECT_EQ(path({{"HOME", "/home/me"}, {"XDG_CACHE_HOME", "/fast"}}),
            "/fast/tandem/kernels");
  EXPECT_THAT(path({}), IsEmpty());
}

}  // namespace
}  // namespace tandem::choice_file_test
