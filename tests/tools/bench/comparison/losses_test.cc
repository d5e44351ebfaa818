#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tools/bench/comparison/contender.h"

namespace tandem::losses_test {
namespace {

using testing::HasSubstr;

TEST(CompareLosses, AcceptsWhatIsEqualWithinTheTolerance) {
  EXPECT_TRUE(CompareLosses({1, 2}, "eager", {1.00009, 1.9999}, 1e-4).ok());
}

TEST(CompareLosses, NamesTheStepThatDiffers) {
  const absl::Status status = CompareLosses({1, 2}, "eager", {1, 2.001}, 1e-4);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 2"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("eager"));
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
  EXPECT_THAT(std::string(KnownLosses("fp32").Check(3, "eager", {1}).message()),
              HasSubstr("for 3 microbatches"));
}

}  // namespace
}  // namespace tandem::losses_test
