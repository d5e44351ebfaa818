#include "core/autotune/kernel_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tandem::kernel_choices_test {
namespace {

using Measuring = KernelChoices::Measuring;

constexpr size_t kSlow = 0;
constexpr size_t kFast = 1;

std::unique_ptr<ChoiceFile> NewFile(const std::string& name) {
  auto file = ChoiceFile::Open(testing::TempDir() + "/" + name +
                               std::to_string(getpid()));
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

const std::vector<Kernel>& Kernels() {
  static const auto* const kernels = new std::vector<Kernel>{
      {"slow",
       [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }},
      {"fast", [] {}},
      {"middle",
       [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }}};
  return *kernels;
}

// Seconds by name instead of a clock's.
Measuring WithTimes(const std::string& file,
                    std::map<std::string, double> times) {
  Measuring measuring;
  measuring.file = NewFile(file);
  measuring.time = [times](const Kernel& kernel) {
    return times.at(kernel.name);
  };
  return measuring;
}

size_t Pick(KernelChoices& choices, size_t fixed = kSlow,
            const std::string& key = "what") {
  return choices.Pick(key, Kernels(), fixed);
}

TEST(KernelChoicesTest, TheRuleIsFixedUntilSomebodyMeasures) {
  KernelChoices choices;
  EXPECT_FALSE(choices.measures());
  for (size_t fixed = 0; fixed < 3; ++fixed) {
    EXPECT_EQ(Pick(choices, fixed), fixed);
  }
  const uint64_t before = choices.generation();
  Measuring measuring;
  measuring.file = NewFile("clock");
  choices.Measure(std::move(measuring));
  EXPECT_TRUE(choices.measures());
  EXPECT_NE(choices.generation(), before);
  EXPECT_EQ(Pick(choices), kFast);
  choices.Fix();
  EXPECT_EQ(Pick(choices), kSlow);
}

TEST(KernelChoicesTest, TheFixedOneGivesWayToWhatIsClearlyFaster) {
  KernelChoices choices;
  const double almost = 0.98;
  choices.Measure(
      WithTimes("almost", {{"slow", 1}, {"fast", almost}, {"middle", 1.2}}));
  EXPECT_EQ(Pick(choices), kSlow);
  choices.Measure(
      WithTimes("clear", {{"slow", 1}, {"fast", 0.9}, {"middle", 0.91}}));
  EXPECT_EQ(Pick(choices), kFast);
  choices.Measure(
      WithTimes("last", {{"slow", 1}, {"fast", 0.9}, {"middle", 0.89}}));
  EXPECT_EQ(Pick(choices), 2);
}

TEST(KernelChoicesTest, TheNextProcessHasTheSameKernels) {
  KernelChoices first;
  first.Measure(WithTimes("next", {{"slow", 3}, {"fast", 1}, {"middle", 2}}));
  EXPECT_EQ(Pick(first), kFast);
  KernelChoices second;
  second.Measure(WithTimes("next", {{"slow", 1}, {"fast", 3}, {"middle", 2}}));
  EXPECT_EQ(Pick(second), kFast);
  EXPECT_EQ(Pick(second, kFast, "another"), kSlow);
}

TEST(KernelChoicesTest, RankZerosChoicesStandBeforeTheFile) {
  KernelChoices other;
  other.Measure(WithTimes("other", {{"slow", 3}, {"fast", 1}, {"middle", 2}}));
  Pick(other);
  KernelChoices choices;
  Measuring measuring =
      WithTimes("mine", {{"slow", 1}, {"fast", 2}, {"middle", 3}});
  measuring.given = *NewFile("other")->Read();
  choices.Measure(std::move(measuring));
  EXPECT_EQ(Pick(choices, kSlow), kFast);
  EXPECT_TRUE(NewFile("mine")->Read()->empty());
}

TEST(KernelChoicesTest, TheJobDecides) {
  KernelChoices choices;
  Measuring measuring =
      WithTimes("job", {{"slow", 1}, {"fast", 2}, {"middle", 3}});
  measuring.decide = [](const std::string& key, const std::string& mine) {
    EXPECT_EQ(mine, "slow");
    return key.find("strange") != std::string::npos ? "strange" : "fast";
  };
  choices.Measure(std::move(measuring));
  EXPECT_EQ(Pick(choices), kFast);
  // An answer that is no kernel here, of another version say.
  EXPECT_EQ(Pick(choices, kFast, "strange"), kSlow);
}

TEST(KernelChoicesTest, WhatTheJobDecidesIsKept) {
  KernelChoices choices;
  Measuring measuring =
      WithTimes("kept_decision", {{"slow", 1}, {"fast", 2}, {"middle", 3}});
  measuring.decide = [](const std::string&, const std::string&) {
    return "fast";
  };
  choices.Measure(std::move(measuring));
  EXPECT_EQ(Pick(choices), kFast);
  KernelChoices next;
  next.Measure(
      WithTimes("kept_decision", {{"slow", 1}, {"fast", 2}, {"middle", 3}}));
  EXPECT_EQ(Pick(next), kFast);
}

// Another job has written another one there since this job began.
TEST(KernelChoicesTest, WhatTheJobDecidesTakesThePlaceOfWhatWasKept) {
  KernelChoices another;
  another.Measure(
      WithTimes("replaced", {{"slow", 1}, {"fast", 2}, {"middle", 3}}));
  EXPECT_EQ(Pick(another), kSlow);
  KernelChoices choices;
  Measuring measuring = WithTimes("replaced", {});  // nothing is measured
  measuring.decide = [](const std::string&, const std::string& mine) {
    EXPECT_EQ(mine, "slow");
    return "fast";
  };
  choices.Measure(std::move(measuring));
  EXPECT_EQ(Pick(choices), kFast);
  KernelChoices next;
  next.Measure(WithTimes("replaced", {}));
  EXPECT_EQ(Pick(next), kFast);
}

// All ranks of a job have one kernel, whatever one of them can read or write.
TEST(KernelChoicesTest, WithoutTheFileTheJobDecidesStill) {
  for (const bool there : {true, false}) {
    KernelChoices choices;
    Measuring measuring;
    if (there) {
      const std::string path =
          testing::TempDir() + "/broken_choices" + std::to_string(getpid());
      measuring.file = *ChoiceFile::Open(path);
      ASSERT_EQ(truncate(path.c_str(), 5 << 20), 0);
    }
    measuring.decide = [](const std::string&, const std::string& mine) {
      EXPECT_EQ(mine, "fast");  // as measured
      return "slow";
    };
    choices.Measure(std::move(measuring));
    EXPECT_EQ(Pick(choices, 2), kSlow);
  }
}

TEST(KernelChoicesTest, WithoutTheFileTheRuleHolds) {
  KernelChoices choices;
  Measuring measuring;
  const std::string path =
      testing::TempDir() + "/large_choices" + std::to_string(getpid());
  measuring.file = *ChoiceFile::Open(path);
  ASSERT_EQ(truncate(path.c_str(), 5 << 20), 0);
  choices.Measure(std::move(measuring));
  EXPECT_EQ(Pick(choices, 2), 2);
}

}  // namespace
}  // namespace tandem::kernel_choices_test
