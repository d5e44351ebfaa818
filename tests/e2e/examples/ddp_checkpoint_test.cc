// tools/examples/ddp_checkpoint, as a user runs it.

#include <unistd.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/example_runs.h"

namespace tandem::ddp_checkpoint_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

bool IsThere(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

class DdpCheckpointTest : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};

TEST_P(DdpCheckpointTest, EveryRankLoadsWhatRankZeroSaved) {
  const std::string file = NewFolder("checkpoint") + "/x.safetensors";
  const ExampleOutput output =
      RunExample(kDdpCheckpoint, ranks(), {"--file=" + file});
  const std::string saved = RestOfLine(output.out, "weights saved   ");
  EXPECT_EQ(saved, output.weights_before + "  in " + file);
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(RestOfLine(output.out,
                         "rank " + std::to_string(rank) + " on cpu loaded "),
              output.weights_before);
  }
  EXPECT_FALSE(IsThere(file));
}

// Ten steps, the file, ten more: the bits of twenty steps without a file. The
// demo of model parallelism has the same model and samples, on other devices.
TEST_P(DdpCheckpointTest, GoesOnAsIfNothingHadBeen) {
  const std::string file = NewFolder("checkpoint") + "/x.safetensors";
  const ExampleOutput stopped =
      RunExample(kDdpCheckpoint, ranks(),
                 {"--file=" + file, "--steps=10", "--learning_rate=0.1"});
  const ExampleOutput straight = RunExample(
      kDdpModelParallel, ranks(), {"--steps=20", "--learning_rate=0.1"});
  EXPECT_EQ(stopped.weights_after, straight.weights_after);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpCheckpointTest, testing::Values(1, 2, 3));

TEST(DdpCheckpointFileTest, OfSomebodyElseIsLeftAlone) {
  const std::string file = NewFolder("checkpoint") + "/mine";
  std::ofstream(file) << "mine";
  Program program(kDdpCheckpoint, {"--nproc_per_node=2", "--file=" + file});
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--file=" + file));
  EXPECT_THAT(result.err, HasSubstr("is there already"));
  EXPECT_EQ(FileContents(file), "mine");
  EXPECT_TRUE(program.LivingProcesses().empty());
}

TEST(DdpCheckpointFileTest, ThatCannotBeWrittenIsNamed) {
  const ProgramResult result = RunProgram(
      kDdpCheckpoint, {"--nproc_per_node=2", "--file=/nonexistent/x"});
  // That of the rank that ends first: the one that could not write, whose user
  // can mend it (2), or the one that waited for it (1).
  EXPECT_THAT(result.exit_code, AnyOf(1, 2)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/x"));
}

}  // namespace
}  // namespace tandem::ddp_checkpoint_test
