// The programs of docs/examples, as a user runs them.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"

namespace tandem::documented_programs_test {
namespace {

using ::testing::HasSubstr;

// The losses that it prints: "step 100: loss 0.012345".
std::vector<double> LossesOf(const std::string& program,
                             const std::vector<std::string>& flags) {
  const ProgramResult result = RunProgram(program, flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  std::vector<double> losses;
  const std::string word = ": loss ";
  for (size_t at = result.out.find(word); at != std::string::npos;
       at = result.out.find(word, at + 1)) {
    losses.push_back(std::stod(result.out.substr(at + word.size())));
  }
  return losses;
}

void ExpectItLearns(const std::vector<double>& losses) {
  ASSERT_GE(losses.size(), 3u);
  EXPECT_LT(losses.back(), losses.front() / 2);
}

TEST(DocumentedPrograms, DdpLearnsOnAnyNumberOfRanks) {
  for (const char* ranks : {"1", "2", "3"}) {
    SCOPED_TRACE(ranks);
    ExpectItLearns(LossesOf("docs/examples/ddp",
                            {std::string("--nproc_per_node=") + ranks}));
  }
}

TEST(DocumentedPrograms, AccumulationLearnsOnAnyNumberOfRanks) {
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(ranks);
    ExpectItLearns(LossesOf("docs/examples/accumulation",
                            {std::string("--nproc_per_node=") + ranks}));
  }
}

TEST(DocumentedPrograms, EpochsGoOnFromTheirCheckpointWithTheSameLosses) {
  const std::string ranks = "--nproc_per_node=2";
  const std::string checkpoint =
      "--checkpoint=" + NewFolder("epochs") + "/checkpoint.safetensors";
  const std::string program = "docs/examples/epochs";
  const std::vector<double> at_once = LossesOf(program, {ranks, "--epochs=3"});
  ExpectItLearns(at_once);
  std::vector<double> in_two =
      LossesOf(program, {ranks, checkpoint, "--epochs=1"});
  for (double loss : LossesOf(program, {ranks, checkpoint, "--epochs=3"})) {
    in_two.push_back(loss);
  }
  EXPECT_EQ(in_two, at_once);
}

TEST(DocumentedPrograms, TheHybridLearnsInEveryCorner) {
  const std::vector<std::vector<std::string>> corners = {
      {"--pipe=1"},
      {"--nproc_per_node=2", "--pipe=1"},
      {"--nproc_per_node=2", "--pipe=2"},
      {"--nproc_per_node=2", "--pipe=2", "--schedule=zb_h1"},
      {"--nproc_per_node=4", "--pipe=2"},
  };
  for (const auto& flags : corners) {
    SCOPED_TRACE(testing::PrintToString(flags));
    ExpectItLearns(LossesOf("docs/examples/hybrid", flags));
  }
}

TEST(DocumentedPrograms, AModuleOfDictsAndTuplesLearnsInStages) {
  for (const char* schedule : {"--schedule=1f1b", "--schedule=zb_h1"}) {
    ExpectItLearns(LossesOf("docs/examples/modules",
                            {"--nproc_per_node=4", "--pipe=2", schedule}));
  }
}

TEST(DocumentedPrograms, RefuseWhatTheUserCanMend) {
  const ProgramResult layout =
      RunProgram("docs/examples/hybrid", {"--nproc_per_node=3", "--pipe=2"});
  EXPECT_EQ(layout.exit_code, 2);
  EXPECT_THAT(layout.err, HasSubstr("hybrid: "));
  const ProgramResult flag = RunProgram("docs/examples/ddp", {"--epoch=3"});
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_THAT(flag.err, HasSubstr("ddp: "));
  EXPECT_THAT(RunProgram("docs/examples/ddp", {"--help"}).out,
              HasSubstr("nproc_per_node"));
}

}  // namespace
}  // namespace tandem::documented_programs_test
