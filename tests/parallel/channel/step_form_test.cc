#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "parallel/channel/message_layout.h"

namespace tandem::step_form_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ChannelStep StepOf(std::vector<int64_t> rows, uint64_t identity = 0) {
  ChannelStep step;
  step.rows = std::move(rows);
  step.identity = identity;
  return step;
}

// Of ranks 4 and 5.
std::string Said(const ChannelStep& first, const ChannelStep& second) {
  const absl::Status status = CheckSameStep(
      DecodeStepForm(Encode(MakeStepForm(first))), 4, MakeStepForm(second), 5);
  return std::string(status.message());
}

TEST(StepFormTest, TheSameStepIsTheSame) {
  EXPECT_EQ(Said(StepOf({2, 2, 1}, 7), StepOf({2, 2, 1}, 7)), "");
  EXPECT_EQ(Said(StepOf({2}, 7), StepOf({2}, 0)), "");
  EXPECT_EQ(Said(StepOf({2}, 0), StepOf({2}, 7)), "");
}

TEST(StepFormTest, SaysWhatDiffers) {
  EXPECT_EQ(Said(StepOf({2, 2}), StepOf({2, 1})),
            "ranks 4 and 5 of one replica have batches of 4 and 3 samples: "
            "give them the same");
  EXPECT_EQ(Said(StepOf({2, 2}), StepOf({2, 1, 1})),
            "ranks 4 and 5 of one replica cut their batch of 4 samples into "
            "microbatches of 2, 2 and of 2, 1, 1: cut it alike");
  EXPECT_THAT(Said(StepOf({1, 2}), StepOf({2, 1})),
              HasSubstr("batch of 3 samples into microbatches of 1, 2 and of "
                        "2, 1: "));
  EXPECT_THAT(Said(StepOf({2}, 7), StepOf({2}, ~uint64_t{0})),
              StartsWith("ranks 4 and 5 of one replica have batches of other "
                         "samples"));
}

TEST(StepFormTest, SaysHowManyMoreThereAre) {
  const std::vector<int64_t> ones(20, 1);
  EXPECT_THAT(Said(StepOf(ones), StepOf({20})),
              HasSubstr("1, 1, 1 and 4 more and of 20: "));
}

}  // namespace
}  // namespace tandem::step_form_test
