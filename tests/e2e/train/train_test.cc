// A job from its start to its summary, on one rank and on several. What the
// program then advises is taken as it stands: the lines at the end of a run,
// and the examples of --help.

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::train_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TrainTest, FashionMnistOnOneRank) {
  const std::string folder = NewFolder("job");
  ProgramResult program;
  const Events events = RunJobForEvents(
      {"--max_steps=60", "--log_every=20", "--save_dir=" + folder}, &program);

  ASSERT_GE(events.size(), 6);
  EXPECT_EQ(events.front()["event"], "settings");
  EXPECT_EQ(events.front()["dataset"], "fashion_mnist");
  EXPECT_EQ(events.front()["strategy"], "single");
  EXPECT_EQ(events.back()["event"], "summary");

  const Events steps = EventsOf(events, "step");
  ASSERT_EQ(steps.size(), 3);
  EXPECT_EQ(steps[0]["step"], 20);
  EXPECT_EQ(steps[2]["step"], 60);
  EXPECT_EQ(steps[2]["epoch"], 1);
  EXPECT_NEAR(steps[0]["learning_rate"].get<double>(), 0.05, 1e-9);
  EXPECT_LT(steps[2]["loss"], steps[0]["loss"]);
  EXPECT_GT(steps[2]["samples_per_s"], 0);
  EXPECT_GT(steps[2]["step_ms"], 0);
  EXPECT_GT(steps[0]["left_s"], 0);
  EXPECT_EQ(steps[2]["left_s"], 0);
  EXPECT_GT(steps[2]["rss_mib"], 50);
  EXPECT_FALSE(steps[2].contains("tokens_per_s"));
  EXPECT_GT(steps[2]["time"], steps[0]["time"]);

  const Events evaluations = EventsOf(events, "eval");
  ASSERT_EQ(evaluations.size(), 1);
  EXPECT_EQ(evaluations[0]["count"], 10000);
  // 60 steps of 64 images: far from trained, far from chance.
  EXPECT_GT(evaluations[0]["accuracy"], 0.5);

  const auto& summary = events.back();
  EXPECT_EQ(summary["test_accuracy"], evaluations[0]["accuracy"]);
  EXPECT_EQ(summary["loss"], steps[2]["loss"]);
  EXPECT_GT(summary["samples_per_s"], 0);
  EXPECT_GT(summary["step_ms_median"], 0);
  EXPECT_GT(summary["peak_rss_mib"], 50);
  EXPECT_GT(summary["startup_ms"], 0);
  EXPECT_EQ(summary["weights_sha256"].get<std::string>().size(), 64);

  EXPECT_THAT(program.out, HasSubstr("settings"));
  EXPECT_THAT(program.out, HasSubstr("step 60/60"));
  EXPECT_THAT(program.out, HasSubstr("  0:00:00 left  "));
  EXPECT_THAT(program.out, HasSubstr("test accuracy"));
  EXPECT_THAT(program.out, HasSubstr("next"));
  // stderr is no terminal: no bar, no escape sequences.
  EXPECT_THAT(program.err, Not(HasSubstr("\x1b")));

  const std::string checkpoint = folder + "/step-000000060";
  EXPECT_THAT(program.out, HasSubstr(checkpoint));
  const ProgramResult inspected = RunProgram(kInspect, {checkpoint});
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr(Fingerprint(events)));
}

// A tied weight counts under each of its names, wherever its copies and parts
// lie.
TEST(TrainTest, InspectCountsATiedWeightAsTheJobDoes) {
  const std::vector<std::string> places = {
      "", "--nproc_per_node=2 --pipe=2",
      "--nproc_per_node=2 --pipe=2 --vocab_parallel=2",
      "--nproc_per_node=2 --tensor=2"};
  for (size_t i = 0; i < places.size(); ++i) {
    SCOPED_TRACE(places[i]);
    const std::string folder = NewFolder(absl::StrCat("tied", i));
    const Events events = RunJobForEvents(
        Tiny("gpt_tiny_tied", "--save_dir=" + folder + " " + places[i]));
    const ProgramResult inspected = RunProgram(kInspect, {folder});
    EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
    EXPECT_THAT(inspected.out, HasSubstr("lm_head.weight "));
    EXPECT_THAT(inspected.out,
                HasSubstr("\nweights_sha256 " + Fingerprint(events) + "\n"));
  }
}

// A person sees what is not as usual, and what follows from several settings;
// programs see all, as what they are.
TEST(TrainTest, SettingsAreShownWhereTheyDiffer) {
  ProgramResult program;
  const Events events =
      RunJobForEvents(SmallJob({"--max_steps=1", "--nesterov"}), &program);
  EXPECT_THAT(program.out, HasSubstr("  nesterov "));
  EXPECT_THAT(program.out, HasSubstr("  learning_rate "));
  EXPECT_THAT(program.out, Not(HasSubstr("lr_schedule")));
  const auto& settings = events.front();
  EXPECT_EQ(settings["nesterov"], true);
  EXPECT_EQ(settings["amsgrad"], false);
  EXPECT_EQ(settings["batch_size"], 16);
  EXPECT_EQ(settings["momentum"], 0.9);
  EXPECT_EQ(settings["learning_rate"], 0.05);
  EXPECT_EQ(settings["lr_schedule"], "constant");
  EXPECT_EQ(settings["comm_hook"], "none");

  RunJobForEvents(SmallJob({"--max_steps=1", "--show_settings"}), &program);
  EXPECT_THAT(program.out, HasSubstr("  lr_schedule "));
  EXPECT_THAT(program.out, HasSubstr("  bucket_cap_mb"));
}

TEST(TrainTest, TheSameJobTwiceGivesTheSameBits) {
  const Flags job = Small("--epochs=2");
  EXPECT_EQ(Fingerprint(RunJobForEvents(job)),
            Fingerprint(RunJobForEvents(job)));
  ExpectSame({"Seed", job, {"--seed=1"}, OtherBits});
}

TEST(TrainTest, TheNumberOfWorkersChangesNothing) {
  ExpectSame(
      {"Workers", SmallJob(), {"--workers=3"}, SameBits, {""}, "--workers=0"});
}

// Ranks see other samples in one step than a single rank does, but the same
// global batch: as many steps, and the same loss as far as sums go.
class RanksTest : public testing::TestWithParam<int> {};

TEST_P(RanksTest, TrainTheSameGlobalBatch) {
  const std::string ranks = std::to_string(GetParam());
  // Batches of the whole set: the order of samples is of no consequence.
  const Flags job =
      SmallJob({"--epochs=6", "--batch_size=96", "--synthetic_samples=96"});
  const Events one = RunJobForEvents(job);
  Flags several = job;
  several.push_back("--nproc_per_node=" + ranks);
  ProgramResult program;
  const Events many = RunJobForEvents(several, &program);
  EXPECT_EQ(many.front()["strategy"], "ddp");
  EXPECT_EQ(many.front()["mesh"], "data " + ranks + " x pipe 1");
  const std::vector<double> expected = StepLosses(one);
  const std::vector<double> found = StepLosses(many);
  ASSERT_EQ(found.size(), 6);
  for (size_t step = 0; step < 6; ++step) {
    EXPECT_NEAR(found[step], expected[step], 1e-4 * expected[step]) << step;
  }
  EXPECT_NE(found.front(), found.back());
  // Each test sample counts once, on any number of ranks.
  EXPECT_EQ(EventsOf(many, "eval")[0]["count"],
            EventsOf(one, "eval")[0]["count"]);
  // Rank 0 speaks for the job.
  EXPECT_THAT(program.out, Not(HasSubstr("rank 1")));
}

INSTANTIATE_TEST_SUITE_P(All, RanksTest, testing::Values(2, 3));

// Two launchers on this host stand for two nodes.
TEST(TrainTest, TwoNodesTrainAsTwoRanksOfOne) {
  const Events expected =
      RunJobForEvents(SmallJob({"--epochs=2", "--nproc_per_node=2"}));
  const std::string metrics = NewFolder("nodes") + "/metrics.jsonl";
  const Flags job = SmallJob({"--epochs=2", "--metrics_file=" + metrics});
  const int port = FreePort();
  Program second(kTrain, Joined(job, NodeFlags(2, 1, port)));
  Program first(kTrain, Joined(job, NodeFlags(2, 0, port)));
  const ProgramResult first_result = first.Wait();
  const ProgramResult second_result = second.Wait();
  EXPECT_EQ(first_result.exit_code, 0) << first_result.err;
  EXPECT_EQ(second_result.exit_code, 0) << second_result.err;
  EXPECT_EQ(Fingerprint(ReadEvents(metrics)), Fingerprint(expected));
  EXPECT_TRUE(first.LivingProcesses().empty());
  EXPECT_TRUE(second.LivingProcesses().empty());
}

TEST(TrainTest, TextIsCountedInTokens) {
  ProgramResult program;
  const Events events =
      RunJobForEvents({"--model=gpt_tiny", "--dataset=synthetic_tokens",
                       "--synthetic_shape=16", "--synthetic_samples=16",
                       "--batch_size=8", "--log_every=1", "--save_dir="},
                      &program);
  const auto step = EventsOf(events, "step").back();
  EXPECT_EQ(step["samples"], 16);
  EXPECT_EQ(step["tokens"], 256);
  EXPECT_NEAR(step["tokens_per_s"], 16 * step["samples_per_s"].get<double>(),
              1e-6 * step["tokens_per_s"].get<double>());
  EXPECT_NEAR(step["perplexity"], std::exp(step["loss"].get<double>()), 1e-9);
  EXPECT_THAT(program.out, HasSubstr(" tokens/s "));
  EXPECT_THAT(program.out, HasSubstr("  perplexity "));
}

TEST(TrainTest, EveryModelTrains) {
  const std::string images = "--dataset=synthetic --synthetic_shape=3,32,32";
  const std::string tokens = "--dataset=synthetic_tokens --synthetic_shape=16";
  const std::string vectors =
      "--dataset=synthetic --synthetic_shape=10 --synthetic_classes=5";
  for (const auto& [model, data] :
       std::vector<std::pair<std::string, std::string>>{
           {"cnn", images},
           {"mlp_wide", images},
           {"mlp_deep", images},
           {"resnet18", images},
           {"resnet50", images},
           {"gpt_tiny", tokens},
           {"gpt_tiny_tied", tokens},
           {"mlp_dropout", images},
           {"unet_tiny", images},
           {"toy", vectors},
           {"toy_mp", vectors}}) {
    const std::vector<double> losses = StepLosses(
        RunJobForEvents(Small(data +
                              " --synthetic_samples=8 --batch_size=4 "
                              "--optimizer=adamw --model=" +
                              model)));
    ASSERT_EQ(losses.size(), 2) << model;
    EXPECT_TRUE(std::isfinite(losses[1])) << model;
  }
}

TEST(TrainTest, ALearningRateOfZeroLearnsNothing) {
  ExpectSame({"Zero", Small("--learning_rate=0"), {"--max_steps=1"}});
}

TEST(TrainTest, LearningRateWarmsUpAndDecays) {
  const Events steps = EventsOf(
      RunJobForEvents(SmallJob({"--learning_rate=0.1", "--lr_warmup_steps=2",
                                "--lr_schedule=step", "--lr_step_size=2"})),
      "step");
  std::vector<double> rates;
  for (const auto& step : steps) rates.push_back(step["learning_rate"]);
  ASSERT_EQ(rates.size(), 6);
  EXPECT_LT(rates[0], 0.1);
  EXPECT_NEAR(rates[2], 0.1, 1e-12);
  EXPECT_LT(rates[5], 0.02);
}

// Takes a moment, and saves where a job does that is told nothing else.
const Flags kShort = {"--dataset=synthetic",    "--synthetic_shape=1,8,8",
                      "--synthetic_samples=32", "--batch_size=16",
                      "--intra_op_threads=1",   "--max_steps=1"};

constexpr char kPlace[] = "BUILD_WORKING_DIRECTORY";  // as Bazel says it

ProgramResult RunIn(const std::string& place, const Flags& flags) {
  ProgramOptions options;
  options.environment[kPlace] = place;
  return RunProgram(kTrain, flags, options);
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The flags of each of the last lines of a run.
std::vector<std::string> AdviceIn(const std::string& out) {
  std::vector<std::string> advice;
  bool begun = false;
  for (const std::string& line : LinesOf(out)) {
    const size_t flags = line.find("--");
    if (begun && flags != std::string::npos) {
      advice.push_back(line.substr(flags));
    }
    begun = begun || line.rfind("what to try next", 0) == 0;
  }
  return advice;
}

TEST(AdviceTest, EveryLineAtTheEndOfARunCanBeTyped) {
  const std::string place = NewFolder("advice");
  const ProgramResult first = RunIn(place, kShort);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::vector<std::string> advice = AdviceIn(first.out);
  EXPECT_EQ(advice.size(), 3u) << first.out;
  for (const std::string& flags : advice) {
    // By a shell, which a user types it into.
    std::string line = std::string(kPlace) + "=" + place + " " + kTrain;
    for (const std::string& flag : kShort) line += " " + flag;
    line += " " + flags + " >" + place + "/out 2>&1";
    EXPECT_EQ(std::system(line.c_str()), 0) << line << "\n"
                                            << FileContents(place + "/out");
  }
  EXPECT_THAT(NamesIn(place),
              AllOf(Contains("checkpoints"), Contains("two_ranks"),
                    Contains("resnet18")));
  EXPECT_THAT(NamesIn(place + "/checkpoints"), Contains("step-000000002"));
}

TEST(AdviceTest, EveryExampleOfHelpCanBeTyped) {
  const std::string place = NewFolder("examples");
  const ProgramResult help = RunProgram(kTrain, {"--help"});
  int examples = 0;
  for (const std::string& line : LinesOf(help.out)) {
    if (line.rfind("  train", 0) != 0) continue;
    // What it is stands behind two spaces or more.
    std::istringstream words(line.substr(2, line.find("  ", 2) - 2));
    std::string program;
    words >> program;
    Flags flags = kShort;
    for (std::string flag; words >> flag;) flags.push_back(flag);
    const ProgramResult result = RunIn(place, flags);
    EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.err;
    ++examples;
  }
  EXPECT_EQ(examples, 3) << help.out;
}

}  // namespace
}  // namespace tandem::train_test
