#include "core/program/long_task.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <thread>

#include "tests/core/program/memory_file.h"

namespace tandem {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(LongTaskTest, WhatEndsSoonSaysNothing) {
  MemoryFile file;
  const auto begun = std::chrono::steady_clock::now();
  { const LongTask task("reading", {true, hours(1), file.get()}); }
  EXPECT_EQ(file.text(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::minutes(1))
      << "it does not wait";
}

TEST(LongTaskTest, WhatTakesLongSaysWhatItDoesAndHowLong) {
  const std::string path = testing::TempDir() + "/long_task";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  {
    const LongTask task("reading", {true, milliseconds(10), file});
    while (Contents(path).empty()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  std::fclose(file);
  EXPECT_TRUE(std::regex_match(
      Contents(path),
      std::regex("reading \\.\\.\\.\nreading took [0-9]+\\.[0-9] "
                 "s\n")))
      << Contents(path);
}

TEST(LongTaskTest, OtherRanksAreSilent) {
  MemoryFile file;
  {
    const LongTask task("reading", {false, milliseconds(0), file.get()});
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(file.text(), "");
  EXPECT_FALSE(LongTask::SpeaksIf(false).speaks);
  EXPECT_EQ(LongTask::SpeaksIf(true).patience, std::chrono::seconds(2));
}

}  // namespace
}  // namespace tandem
