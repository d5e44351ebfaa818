// The programs of docs/examples, as a user runs them: also
// docs/examples/consumer/my_train, the trainer with a model and a data set that
// are not its own.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/tensorboard/event_records.h"
#include "tests/e2e/program.h"

namespace tandem::documented_programs_test {
namespace {

using ::testing::HasSubstr;

// The losses that it prints: "step 100: loss 0.012345". All that it prints goes
// to `out`, if that is not null.
std::vector<double> LossesOf(const std::string& program,
                             const std::vector<std::string>& flags,
                             std::string* out = nullptr) {
  const ProgramResult result = RunProgram(program, flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  if (out != nullptr) *out = result.out;
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

TEST(DocumentedPrograms, PartsRunOnAnyNumberOfRanks) {
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(ranks);
    const ProgramResult result = RunProgram(
        "docs/examples/parts", {std::string("--nproc_per_node=") + ranks});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("uneven inputs: loss "));
    EXPECT_THAT(result.out, HasSubstr("SyncBatchNorm: 1 layer\n"));
    EXPECT_THAT(result.out, HasSubstr("two outputs: loss "));
  }
}

TEST(DocumentedPrograms, TensorBoardHasTheLossesThatArePrinted) {
  const std::string folder = NewFolder("events");
  const std::vector<double> losses =
      LossesOf("docs/examples/tensorboard", {folder});
  ExpectItLearns(losses);
  const std::vector<ReadEvent> events = EventsIn(folder);
  const auto curve = ScalarsIn(events, "train/loss");
  EXPECT_EQ(curve.size(), 300u);
  EXPECT_NEAR(curve.at(300), losses.back(), 1e-6);
  EXPECT_EQ(events.back().histograms.at("gradients/weight").count, 8);
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

TEST(DocumentedPrograms, StagesGoOnFromTheirCheckpointInAnotherLayout) {
  const std::string program = "docs/examples/saved_stages";
  const std::vector<std::string> stages = {"--nproc_per_node=2", "--pipe=2"};
  const auto run = [&](std::vector<std::string> flags,
                       const std::string& epochs, const std::string& folder) {
    flags.push_back("--epochs=" + epochs);
    flags.push_back("--save_dir=" + folder);
    return LossesOf(program, flags);
  };
  const std::vector<double> at_once =
      run(stages, "2", NewFolder("stages_at_once"));
  ExpectItLearns(at_once);
  const std::string folder = NewFolder("stages_in_two");
  std::vector<double> in_two = run(stages, "1", folder);
  for (const double loss : run({"--pipe=1"}, "2", folder)) {
    in_two.push_back(loss);
  }
  ASSERT_EQ(in_two.size(), at_once.size());
  for (size_t i = 0; i < at_once.size(); ++i) {
    EXPECT_NEAR(in_two[i], at_once[i], 1e-4) << i;
  }
}

TEST(DocumentedPrograms, AModuleOfDictsAndTuplesLearnsInStages) {
  for (const char* schedule : {"--schedule=1f1b", "--schedule=zb_h1"}) {
    ExpectItLearns(LossesOf("docs/examples/modules",
                            {"--nproc_per_node=4", "--pipe=2", schedule}));
  }
}

// The samples of each replica's evaluation count once, whoever shares it.
TEST(DocumentedPrograms, LayersLearnWhoeverSharesThem) {
  const std::vector<std::vector<std::string>> layouts = {
      {"--tensor=1"},
      {"--nproc_per_node=2", "--tensor=2"},
      {"--nproc_per_node=2", "--tensor=1"},
      {"--nproc_per_node=4", "--tensor=2"},
  };
  const int replicas[] = {1, 1, 2, 2};
  for (size_t i = 0; i < layouts.size(); ++i) {
    SCOPED_TRACE(testing::PrintToString(layouts[i]));
    std::string out;
    ExpectItLearns(LossesOf("docs/examples/layers", layouts[i], &out));
    EXPECT_THAT(out, HasSubstr(absl::StrCat(" of ", 256 * replicas[i], "\n")));
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

ProgramResult RunMyTrain(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"--save_dir=", "--batch_size=64"});
  return RunProgram("docs/examples/my_train", flags);
}

ProgramResult TrainMyNet(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"--model=my_net", "--dataset=quadrants"});
  return RunMyTrain(flags);
}

// The rest of the line that begins so.
std::string Line(const std::string& text, const std::string& begin) {
  const size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  const size_t first = at + begin.size();
  return text.substr(first, text.find('\n', first) - first);
}

TEST(MyTrainTest, LearnsAsAnyOfTheTrainers) {
  const ProgramResult result = TrainMyNet({"--epochs=3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(std::stod(Line(result.out, "test accuracy")), 95) << result.out;
}

TEST(MyTrainTest, DdpAPipelineAndTheHybridAreOneDevice) {
  const std::vector<std::string> same = {"--reproducible",
                                         "--microbatch_size=16"};
  const auto weights_of = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), same.begin(), same.end());
    const ProgramResult result = TrainMyNet(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Line(result.out, "weights_sha256");
  };
  const std::string one = weights_of({});
  EXPECT_NE(one, "");
  EXPECT_EQ(weights_of({"--nproc_per_node=2"}), one);
  EXPECT_EQ(weights_of({"--nproc_per_node=2", "--pipe=2"}), one);
  EXPECT_EQ(weights_of({"--nproc_per_node=4", "--pipe=2"}), one);
}

struct Sums {
  std::vector<double> steps, evaluations;
};

// What the lines of a job call "active", as its metrics file has it.
Sums ActiveOf(const std::vector<std::string>& layout) {
  static int runs = 0;
  const std::string metrics =
      absl::StrCat(testing::TempDir(), "/active", ++runs, ".jsonl");
  std::vector<std::string> flags = {"--reproducible", "--microbatch_size=16",
                                    "--max_steps=6", "--log_every=3",
                                    "--metrics_file=" + metrics};
  flags.insert(flags.end(), layout.begin(), layout.end());
  const ProgramResult result = TrainMyNet(flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Line(result.out, "test: loss"), HasSubstr("  active "));
  Sums sums;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] == "step") sums.steps.push_back(event["sums"]["active"]);
    if (event["event"] != "eval") continue;
    sums.evaluations.push_back(event["sums"]["active"]);
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat(
                                "  active ", sums.evaluations.back(), "  ")));
  }
  return sums;
}

TEST(MyTrainTest, NamedSumsAreThoseOfOneDeviceInEveryLayout) {
  const Sums one = ActiveOf({});
  ASSERT_EQ(one.steps.size(), 2u);
  ASSERT_EQ(one.evaluations.size(), 1u);
  // 3 steps have 64 samples each, the test set has 512: 32 numbers of each.
  EXPECT_GT(one.steps[0], 0);
  EXPECT_LT(one.steps[0], 32 * 3 * 64);
  EXPECT_GT(one.evaluations[0], 0);
  EXPECT_LT(one.evaluations[0], 32 * 512);
  for (const std::vector<std::string>& layout :
       std::vector<std::vector<std::string>>{
           {"--nproc_per_node=2"},
           {"--nproc_per_node=2", "--pipe=2"},
           {"--nproc_per_node=4", "--pipe=2"}}) {
    const Sums sums = ActiveOf(layout);
    EXPECT_EQ(sums.steps, one.steps);
    EXPECT_EQ(sums.evaluations, one.evaluations);
  }
}

TEST(MyTrainTest, TrainsTheTrainersOnesToo) {
  const ProgramResult result =
      RunMyTrain({"--model=mlp_small", "--dataset=quadrants", "--max_steps=2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(MyTrainTest, HelpAndErrorsKnowTheNames) {
  const std::string help = RunMyTrain({"--help"}).out;
  EXPECT_THAT(help, HasSubstr("--model takes this program's own, too: my_net"));
  EXPECT_THAT(help,
              HasSubstr("--dataset takes this program's own, too: quadrants"));
  const ProgramResult model = RunMyTrain({"--model=your_net"});
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.err, HasSubstr("choose one of my_net, "));
  const ProgramResult data = RunMyTrain({"--dataset=quadrant"});
  EXPECT_EQ(data.exit_code, 2);
  EXPECT_THAT(data.err, HasSubstr("choose one of quadrants, "));
}

TEST(MyTrainTest, WhatTheFlagsSayIsCheckedForThem) {
  const ProgramResult sizes = TrainMyNet({"--layers=3"});
  EXPECT_EQ(sizes.exit_code, 2);
  EXPECT_THAT(sizes.err, HasSubstr("model my_net is of one size"));
}

}  // namespace
}  // namespace tandem::documented_programs_test
