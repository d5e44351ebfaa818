#include "tools/bench/comparison/flags.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::comparison_flags_test {
namespace {

TEST(ComparisonFlags, BecomeOptions) {
  BenchFlags flags;
  flags.python = "/no/such/python";
  flags.threads = 2;
  flags.steps = 5;
  const auto options = OptionsFromFlags(flags, /*usual_rounds=*/3, "here");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->threads, 2);
  EXPECT_EQ(options->steps, 5);
  EXPECT_EQ(options->rounds, 3);
  EXPECT_EQ(options->folder, "here");
  EXPECT_EQ(options->python.status().code(), absl::StatusCode::kNotFound);
  flags.rounds = 4;
  EXPECT_EQ(OptionsFromFlags(flags, 3, "here")->rounds, 4);
  flags.rounds = 0;
  EXPECT_EQ(OptionsFromFlags(flags, 3, "here").status(),
            absl::InvalidArgumentError("--rounds=0: expected at least 1"));
}

TEST(ComparisonFlags, ChooseCasesInDtypes) {
  Case one;
  one.name = one.workload.model = "a";
  Case other = one;
  other.name = other.workload.model = "b";
  BenchFlags flags;
  EXPECT_EQ(CasesFromFlags({one, other}, flags)->size(), 2u);
  flags.cases = {"b"};
  flags.dtypes = {"fp32", "bf16"};
  const auto cases = CasesFromFlags({one, other}, flags);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 2u);
  EXPECT_EQ((*cases)[0].name, "b");
  EXPECT_EQ((*cases)[1].name, "b:bf16");
  flags.cases = {"c"};
  EXPECT_EQ(CasesFromFlags({one}, flags).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::comparison_flags_test
