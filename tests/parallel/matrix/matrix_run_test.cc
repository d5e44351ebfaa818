// What is asked of a matrix, and what its command counts.

#include "tests/parallel/matrix/matrix_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/testing/statuses.h"

namespace tandem::matrix_run_test {
namespace {

TEST(MatrixRunTest, WhatThereIsNotIsRefusedByName) {
  const std::vector<std::string> known = {"mlp", "gpt"};
  EXPECT_TRUE(CheckAsked("models", {}, known).ok());
  EXPECT_TRUE(CheckAsked("models", {"gpt", "mlp"}, known).ok());
  EXPECT_EQ(CheckAsked("models", {"gpt", "mpl"}, known).message(),
            "--models: there is no 'mpl': choose among mlp, gpt");
  EXPECT_TRUE(IsAsked({}, "mlp"));
  EXPECT_TRUE(IsAsked({"gpt", "mlp"}, "mlp"));
  EXPECT_FALSE(IsAsked({"gpt"}, "mlp"));
}

TEST(MatrixRunTest, AShardIsOneOfSoMany) {
  ASSERT_TRUE(ParseShard("2/3").ok());
  EXPECT_EQ(ParseShard("2/3")->index, 1u);
  EXPECT_EQ(ParseShard("2/3")->count, 3u);
  for (const char* wrong : {"", "2", "0/3", "4/3", "-1/3", "1/2/3", "a/b"}) {
    EXPECT_THAT(ParseShard(wrong).status(), Says("expected I/N")) << wrong;
  }
}

TEST(MatrixRunTest, ShardsRunEveryCellOnceAndCountWhatFails) {
  std::vector<int> runs(7, 0);
  MatrixCommand command;
  command.cells = runs.size();
  command.name = [](size_t cell) { return std::to_string(cell); };
  command.row = [](size_t) { return std::make_pair("model", "schedule"); };
  command.run = [&](size_t cell) {
    ++runs[cell];
    CellOutcome outcome;
    if (cell % 3 == 1) outcome.complaint = "it differs";
    return outcome;
  };
  int failed = 0;
  for (size_t i = 0; i < 3; ++i) failed += RunMatrix(command, {i, 3});
  EXPECT_EQ(failed, 2);
  EXPECT_EQ(runs, std::vector<int>(7, 1));
}

TEST(MatrixRunTest, SizesAreThoseOfTheValues) {
  EXPECT_EQ(SizesOf({{"first", {"a"}}, {"none", {}}, {"last", {"b", "c"}}}),
            (std::vector<int>{1, 0, 2}));
}

}  // namespace
}  // namespace tandem::matrix_run_test
