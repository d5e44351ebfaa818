#include "core/autotune/kernel_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/autotune/choice_file.h"
#include "tests/core/testing/on_threads.h"
#include "tests/core/testing/test_files.h"

namespace tandem::kernel_choices_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
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

std::string NewPath(const std::string& name) {
  return testing::TempDir() + "/" + name + std::to_string(getpid()) +
         "/a/b/kernels";
}

std::unique_ptr<ChoiceFile> Opened(const std::string& path) {
  auto file = ChoiceFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
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
  WriteBytes(path, "key\tunknown\n");
  EXPECT_EQ(Find(*file, "key", "mkl"), "mkl");
  EXPECT_EQ(Find(*Opened(path), "key", "onednn"), "mkl");
}

TEST(ChoiceFileTest, DamageIsPassedOver) {
  const std::string path = NewPath("damage");
  const auto file = Opened(path);
  WriteBytes(path, std::string("\n\t\n\tmkl\nkey\t\nno tab\na\tb\tc\n") + '\0' +
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
  WriteBytes(path, std::string((4 << 20) + 1, 'x'));
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
  OnThreads(4, [&](int i) {
    // A file of its own each, as processes have them.
    const auto file = Opened(path);
    for (int key = 0; key < 20; ++key) {
      const auto choice = file->FindOr(
          std::to_string(key), [](const std::string&) { return true; },
          [&] {
            ++asked;
            return std::to_string(i);
          });
      found[i] += choice.value_or("?");
    }
  });
  EXPECT_EQ(asked, 20);
  for (const std::string& choices : found) EXPECT_EQ(choices, found[0]);
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
}  // namespace tandem::kernel_choices_test
