// Contenders whose ranks are shells, which answer by rote.

#include "tools/bench/comparison/contender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "tests/tools/bench/sides.h"

namespace tandem::contender_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Losses are 1 and 1.5 with any setting; 4 microbatches are the fastest.
constexpr char kRank[] = R"(
ms=9
while read -r verb word chunks count rest; do
  case $verb in
    use) case $count in 2) ms=20;; 4) ms=10;; *) ms=30;; esac
         echo '{"cuts": []}';;
    losses) if [ "$RANK" = 0 ]; then echo '{"losses": [1.0, LOSS], "kernels": "its own"}'
            else echo '{"losses": [0, 0.5]}'; fi;;
    steps) echo "{\"ms\": $((ms + RANK)), \"cpu_ms\": 5, \"faults\": 2}";;
    alone) echo "{\"ms\": $((4 + 2 * RANK))}";;
    communication) echo '{"comm_ms": 3, "exposed_ms": 1}';;
    memory) echo "{\"peak_mib\": $((100 + RANK))}";;
    floor) echo "{\"ms\": $((2 + RANK)), \"bytes\": 3e6, \"gb_per_s\": 10}";;
    *) echo '{"error": "no luck"}';;
  esac
done < "$COMMANDS")";

class ContenderTest : public testing::Test {
 protected:
  // Two ranks, a replica each.
  Contender Start(const std::string& name,
                  const std::string& second_loss = "1.0") {
    std::string script = kRank;
    script.replace(script.find("LOSS"), 4, second_loss);
    auto side = Side::Start(ShellRanks(name, 2, TestFolder(), script));
    EXPECT_TRUE(side.ok()) << side.status();
    return Contender(name, *std::move(side), /*replicas=*/2);
  }

  KnownLosses losses_{"fp32"};
};

std::vector<Setting> ThreeSettings() {
  return SettingChoices("1f1b", {1}, {2, 4, 8}, 8);
}

TEST_F(ContenderTest, ChoosesTheFastestSetting) {
  Contender ours = Start("tandem");
  ASSERT_TRUE(ours.Choose(ThreeSettings(), 2, /*records=*/true, losses_).ok());
  std::vector<int> microbatches;
  for (const Setting& each : ours.ranking()) {
    microbatches.push_back(each.microbatches);
  }
  EXPECT_THAT(microbatches, ElementsAre(4, 4, 2, 2, 8, 8));
  ASSERT_TRUE(ours.MeasureStep(3).ok());
  const SideResult result = ours.TakeResult();
  EXPECT_EQ(ToString(result.setting), "1f1b 1 4 uniform");
  EXPECT_THAT(result.step_ms, ElementsAre(11));  // the slower rank's
}

TEST_F(ContenderTest, CollectsWhatIsMeasuredUntilItIsTaken) {
  Contender ours = Start("tandem");
  ASSERT_TRUE(ours.Choose({Setting()}, 2, /*records=*/true, losses_).ok());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ours.MeasureStep(3).ok());
    ASSERT_TRUE(ours.MeasureAlone(3).ok());
  }
  ASSERT_TRUE(ours.MeasureCommunication(3).ok());
  ASSERT_TRUE(ours.MeasureMemory().ok());
  ASSERT_TRUE(ours.MeasureFloor().ok());
  const SideResult result = ours.TakeResult();
  EXPECT_EQ(result.name, "tandem");
  EXPECT_FALSE(result.failed());
  ASSERT_TRUE(result.floor.has_value());
  EXPECT_EQ(result.floor->products_ms, 2) << "the first rank's";
  EXPECT_NEAR(result.floor->ms(), 2.3, 1e-12);  // 3 MB at 10 GB/s
  EXPECT_THAT(result.step_ms, ElementsAre(31, 31));
  EXPECT_THAT(result.alone_ms, ElementsAre(5, 5));  // a mean over the ranks
  EXPECT_THAT(result.cpu_ms, ElementsAre(5, 5));
  EXPECT_THAT(result.faults, ElementsAre(2, 2));
  EXPECT_EQ(result.comm_ms, 3);
  EXPECT_EQ(result.exposed_ms, 1);
  EXPECT_EQ(result.peak_mib, 101);
  EXPECT_THAT(ours.TakeResult().step_ms, IsEmpty());
}

TEST_F(ContenderTest, APeerMustHaveTheLossesThatAreKnown) {
  Contender ours = Start("tandem");
  Contender same = Start("same");
  Contender other = Start("other", "1.1");
  EXPECT_FALSE(Start("early").Choose({Setting()}, 2, false, losses_).ok());
  ASSERT_TRUE(ours.RecordLosses(Setting(), 2, losses_).ok());
  EXPECT_TRUE(same.Choose({Setting()}, 2, false, losses_).ok());
  const absl::Status status = other.Choose({Setting()}, 2, false, losses_);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                               "other (1f1b 1 1 uniform)", "step 2"));
  EXPECT_EQ(other.status(), status);
  EXPECT_EQ(other.MeasureStep(1), status);
  EXPECT_EQ(other.TakeResult().failure, std::string(status.message()));
}

TEST_F(ContenderTest, WhatFailsOnceHasNoFigures) {
  Contender ours = Start("tandem");
  ASSERT_TRUE(ours.Choose({Setting()}, 2, true, losses_).ok());
  ASSERT_TRUE(ours.MeasureStep(3).ok());
  EXPECT_FALSE(ours.Ask("dance").ok());
  EXPECT_FALSE(ours.MeasureStep(3).ok());
  const SideResult result = ours.TakeResult();
  EXPECT_TRUE(result.failed());
  EXPECT_THAT(result.failure, HasSubstr("no luck"));
  EXPECT_THAT(result.step_ms, IsEmpty());
}

TEST(Contender, ThatCouldNotBeStartedSaysWhy) {
  KnownLosses losses("fp32");
  Contender none("single", absl::NotFoundError("no Python"));
  EXPECT_EQ(none.Choose({Setting()}, 1, false, losses),
            absl::NotFoundError("no Python"));
  EXPECT_EQ(none.TakeResult().name, "single");
  EXPECT_EQ(none.TakeResult().failure, "no Python");
}

TEST_F(ContenderTest, TurnsBeginWithAnotherOneEachTime) {
  Contender a = Start("a");
  Contender b = Start("b");
  Contender gone("gone", absl::NotFoundError("no Python"));
  std::string order;
  ASSERT_TRUE(TakeTurns(3, {&a, &b, &gone}, [&](Contender& each) {
                absl::StrAppend(&order, each.name());
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(order, "abbaab");
  const absl::Status error = absl::InternalError("ours");
  EXPECT_EQ(TakeTurns(3, {&a, &b}, [&](Contender&) { return error; }), error);
}

TEST(CompareLosses, AcceptsWhatIsEqualWithinTheTolerance) {
  EXPECT_TRUE(CompareLosses({1, 2}, "eager", {1.00009, 1.9999}, 1e-4).ok());
}

TEST(CompareLosses, NamesTheStepThatDiffers) {
  const absl::Status status = CompareLosses({1, 2}, "eager", {1, 2.001}, 1e-4);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "step 2", "eager"));
}

TEST(CompareLosses, RefusesNanAndMissingSteps) {
  EXPECT_FALSE(CompareLosses({NAN}, "eager", {NAN}, 1e-4).ok());
  EXPECT_FALSE(CompareLosses({1}, "eager", {1, 1}, 1e-4).ok());
}

TEST(KnownLosses, AreThoseOfTheFirstWithSoManyMicrobatches) {
  KnownLosses losses("fp32");
  EXPECT_TRUE(losses.Record(2, "tandem", {3, 2}).ok());
  EXPECT_TRUE(losses.Record(4, "tandem", {5, 4}).ok());
  EXPECT_TRUE(losses.Check(2, "eager", {3, 2}).ok());
  EXPECT_FALSE(losses.Check(4, "eager", {3, 2}).ok());
  // A side whose losses could be recorded is checked, too.
  EXPECT_FALSE(losses.Record(2, "tandem", {5, 4}).ok());
  EXPECT_TRUE(losses.Check(2, "eager", {3, 2}).ok());
  EXPECT_FALSE(losses.Record(8, "tandem", {NAN}).ok());
}

TEST(KnownLosses, MayBeFurtherApartInBf16) {
  EXPECT_EQ(LossTolerance("fp32"), 1e-4);
  KnownLosses losses("bf16");
  EXPECT_TRUE(losses.Record(1, "tandem", {3}).ok());
  EXPECT_TRUE(losses.Check(1, "eager", {3.01}).ok());
  EXPECT_FALSE(losses.Check(1, "eager", {3.02}).ok());
}

TEST(KnownLosses, SayWhereThereAreNone) {
  EXPECT_THAT(KnownLosses("fp32").Check(3, "eager", {1}),
              Says("for 3 microbatches"));
}

}  // namespace
}  // namespace tandem::contender_test
