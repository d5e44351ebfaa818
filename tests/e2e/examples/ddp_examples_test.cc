// tools/examples/ddp_model_parallel and ddp_checkpoint, as a user runs them;
// and what a user can get wrong when running an example, and --help.

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/example_runs.h"

namespace tandem::ddp_examples_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Large steps, so that the loss shows what they did.
Flags LargeSteps(const std::string& more) {
  return {"--learning_rate=0.1", "--steps=20", more};
}

class DdpModelParallelTest : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};

TEST_P(DdpModelParallelTest, EachRankOwnsTwoDevices) {
  const ExampleOutput output = RunExample(kDdpModelParallel, ranks());
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::string first = " sim:" + std::to_string(2 * rank);
    const std::string second = " sim:" + std::to_string(2 * rank + 1);
    EXPECT_EQ(RestOfLine(output.out, "rank " + std::to_string(rank) + " on" +
                                         first + " and" + second + ":"),
              " net1.weight" + first + " net1.bias" + first + " net2.weight" +
                  second + " net2.bias" + second);
  }
}

TEST_P(DdpModelParallelTest, SimulatedDevicesHaveTheCpusBits) {
  const ExampleOutput sim =
      RunExample(kDdpModelParallel, ranks(), LargeSteps("--device=sim"));
  const ExampleOutput cpu =
      RunExample(kDdpModelParallel, ranks(), LargeSteps("--device=cpu"));
  EXPECT_EQ(sim.weights_after, cpu.weights_after);
}

// The mean over ranks of each one's mean is the mean over all samples.
TEST_P(DdpModelParallelTest, TrainsAsOneProcessWithEveryRanksSamples) {
  const ExampleOutput many =
      RunExample(kDdpModelParallel, ranks(), LargeSteps("--batch_size=20"));
  const ExampleOutput alone =
      RunExample(kDdpModelParallel, 1,
                 LargeSteps("--batch_size=" + std::to_string(20 * ranks())));
  EXPECT_EQ(many.weights_before, alone.weights_before);
  // Gradients are summed in another order.
  EXPECT_NEAR(many.loss_before, alone.loss_before, kLossTolerance);
  EXPECT_NEAR(many.loss_after, alone.loss_after, kLossTolerance);
  EXPECT_LT(many.loss_after, many.loss_before - 0.01);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpModelParallelTest, testing::Values(1, 2, 3));

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
  // The exit code is that of the rank that ends first: the one that could not
  // write, whose user can mend it (2), or the one that waited for it (1).
  EXPECT_THAT(result.exit_code, AnyOf(1, 2)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/x"));
}

struct Refusal {
  std::string name;
  std::string program;
  Flags flags;
  std::vector<std::string> says;
};

class ExampleRefusalTest : public testing::TestWithParam<Refusal> {};

// Before any rank is started.
TEST_P(ExampleRefusalTest, SaysWhatIsWrongInOneLine) {
  const Refusal& refusal = GetParam();
  Program program(refusal.program, refusal.flags);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  const std::string name =
      refusal.program.substr(refusal.program.rfind('/') + 1);
  EXPECT_THAT(result.err, StartsWith(name + ": "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
      << result.err;
  for (const std::string& text : refusal.says) {
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  EXPECT_TRUE(program.LivingProcesses().empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, ExampleRefusalTest,
    testing::Values(
        Refusal{"UnknownFlag", kDdpBasic, {"--step=3"}, {"--step", "--steps"}},
        Refusal{"StrayWord", kDdpBasic, {"cpu"}, {"'cpu' is no flag"}},
        Refusal{"UnknownDevice",
                kDdpBasic,
                {"--nproc_per_node=2", "--device=abacus"},
                {"--device=abacus", "cpu, cuda, sim"}},
        Refusal{"NoGpu",
                kDdpModelParallel,
                {"--nproc_per_node=2", "--device=cuda"},
                {"--device=cuda: ", "built without CUDA", "run it on cpu"}},
        Refusal{"MoreDevicesThanThereAre",
                kDdpModelParallel,
                {"--nproc_per_node=9"},
                {"9 ranks with 2 each need 18", "16 at most"}},
        Refusal{"MoreRanksThanDevices",
                kDdpCheckpoint,
                {"--nproc_per_node=17", "--device=sim"},
                {"17 ranks with 1 each need 17", "16 at most"}},
        Refusal{"NoSteps", kDdpCheckpoint, {"--steps=0"}, {"--steps=0"}},
        Refusal{"NoSamples",
                kDdpBasic,
                {"--nproc_per_node=2", "--batch_size=-20"},
                {"--batch_size=-20"}},
        Refusal{"BackwardSteps",
                kDdpModelParallel,
                {"--learning_rate=-0.1"},
                {"--learning_rate=-0.1", "above 0"}},
        Refusal{"NoRanks", kDdpBasic, {"--nproc_per_node=0"}, {"nproc"}}),
    [](const auto& info) { return info.param.name; });

struct Help {
  std::string program;
  std::vector<std::string> own_flags;
};

class ExampleHelpTest : public testing::TestWithParam<Help> {};

TEST_P(ExampleHelpTest, ListsEveryFlag) {
  const ProgramResult result = RunProgram(GetParam().program, {"--help"});
  EXPECT_EQ(result.exit_code, 0);
  Flags flags = {"device",        "batch_size",  "steps",
                 "learning_rate", "seed",        "nnodes",
                 "node_rank",     "rank",        "nproc_per_node",
                 "master_addr",   "master_port", "world_size",
                 "local_rank",    "dist_url"};
  for (const std::string& flag : GetParam().own_flags) flags.push_back(flag);
  for (const std::string& flag : flags) {
    EXPECT_TRUE(std::regex_search(result.out,
                                  std::regex("\n  --" + flag + "( \\(.*)?\n")))
        << flag;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExampleHelpTest,
                         testing::Values(Help{kDdpBasic, {}},
                                         Help{kDdpCheckpoint, {"file"}},
                                         Help{kDdpModelParallel, {}}),
                         [](const auto& info) {
                           const std::string& path = info.param.program;
                           return path.substr(path.rfind('/') + 1);
                         });

}  // namespace
}  // namespace tandem::ddp_examples_test
