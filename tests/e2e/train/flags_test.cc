// Flags as a user finds, keeps and tries them: --help, --config,
// --print_config, --completion, names of other trainers.

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem::flags_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string WrittenFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

ProgramResult Refused(const Flags& flags) {
  const ProgramResult result = RunProgram(kTrain, flags);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  return result;
}

TEST(HelpTopicTest, AGroupAFlagAndAllArePrinted) {
  const ProgramResult pipeline = RunProgram(kTrain, {"--help=pipeline"});
  EXPECT_EQ(pipeline.exit_code, 0);
  EXPECT_THAT(pipeline.out,
              AllOf(StartsWith("Pipeline\n  --schedule (default: 1f1b)\n"),
                    HasSubstr("\n  --microbatch_size "),
                    Not(HasSubstr("--optimizer "))));
  const ProgramResult flag = RunProgram(kTrain, {"--help=weight-decay"});
  EXPECT_EQ(flag.exit_code, 0);
  EXPECT_THAT(flag.out, StartsWith("  --weight_decay (default: 0)\n"));
  EXPECT_THAT(Refused({"--help=pipelin_"}).err,
              HasSubstr("Known groups: pipeline, "));
}

TEST(ConfigTest, ARunIsRepeatedFromWhatItPrints) {
  const Flags flags =
      SmallJob({"--nproc_per_node=2", "--optimizer=adamw", "--seed=7",
                "--learning_rate=0.003", "--nodrop_last", "--max_steps=3",
                "--no_weight_decay_on=bias$|^bn #", "--weight_decay=0.1"});
  const ProgramResult printed =
      RunProgram(kTrain, Joined(flags, {"--print_config"}));
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_THAT(printed.out,
              AllOf(HasSubstr("# Optimizer\noptimizer=adamw\n"),
                    HasSubstr("\ndrop_last=false\n"),
                    HasSubstr("\nno_weight_decay_on=bias$|^bn #\n"),
                    HasSubstr("# Launch\nnproc_per_node=2\n"),
                    Not(HasSubstr("momentum"))));
  const std::string config = WrittenFile("run.conf", printed.out);
  const std::string first = Fingerprint(RunJobForEvents(flags));
  EXPECT_NE(first, "");
  EXPECT_EQ(Fingerprint(RunJobForEvents({"--config=" + config})), first);
  // The whole of it says the same.
  const ProgramResult all =
      RunProgram(kTrain, Joined(flags, {"--print_config=all"}));
  EXPECT_THAT(all.out, HasSubstr("\nmomentum=0.9\n"));
  const std::string whole = WrittenFile("all.conf", all.out);
  EXPECT_EQ(RunProgram(kTrain, {"--config=" + whole, "--print_config"}).out,
            printed.out);
  // Another seed, on the command line before the file.
  const Events other = RunJobForEvents({"--seed=8", "--config=" + config});
  EXPECT_NE(Fingerprint(other), first);
}

TEST(ConfigTest, ErrorsNameTheFileAndTheLine) {
  const std::string config =
      WrittenFile("wrong.conf", "# a job\nbatch_size=64\nlr=0.1\n");
  EXPECT_THAT(Refused({"--config=" + config}).err,
              HasSubstr(config + ":3: unknown flag --lr: write "
                                 "--learning_rate=RATE"));
  EXPECT_THAT(Refused({"--config=/no/such/file"}).err,
              HasSubstr("--config=/no/such/file: "));
}

TEST(ConfigTest, AFileIsFoundFromWhereTheUserStands) {
  WrittenFile("here.conf", "seed=11\n");
  ProgramOptions options;
  options.environment["BUILD_WORKING_DIRECTORY"] = testing::TempDir();
  const ProgramResult result =
      RunProgram(kTrain, {"--config=here.conf", "--print_config"}, options);
  EXPECT_EQ(result.out, "# Steps and batches\nseed=11\n") << result.err;
}

TEST(OtherNamesTest, OtherTrainersNamesAreTranslated) {
  for (const auto& [given, says] :
       std::vector<std::pair<std::string, std::string>>{
           {"--lr=0.1", "write --learning_rate=RATE"},
           {"--batch-sizes=4", "did you mean --batch_size?"},
           {"--block_size=256", "write --context=TOKENS"},
           {"--n-layer=6", "write --layers=NUMBER"},
           {"--max_iters=5", "write --max_steps=STEPS"},
           {"--grad-clip=1", "write --clip_grad_norm=NORM"}}) {
    const ProgramResult result = Refused({given});
    EXPECT_THAT(result.err, HasSubstr(says));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }
}

TEST(CompletionTest, ScriptsKnowTheProgramsNames) {
  const ProgramResult bash = RunProgram(kTrain, {"--completion=bash"});
  EXPECT_EQ(bash.exit_code, 0) << bash.err;
  EXPECT_THAT(bash.out, AllOf(HasSubstr("complete -F _train 'train'"),
                              HasSubstr("--model) values=")));
  const ProgramResult zsh = RunProgram(kTrain, {"--completion=zsh"});
  EXPECT_THAT(zsh.out, StartsWith("#compdef train\n"));
  EXPECT_THAT(Refused({"--completion=fish"}).err,
              HasSubstr("known shells: bash, zsh"));
}

}  // namespace
}  // namespace tandem::flags_test
