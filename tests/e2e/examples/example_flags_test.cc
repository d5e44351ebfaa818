// What a user can get wrong when running an example, and --help.

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/example_runs.h"

namespace tandem::example_flags_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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
}  // namespace tandem::example_flags_test
