// Curves and histograms of --tensorboard_dir, as jobs leave them.

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/tensorboard/event_records.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::tensorboard_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Points = std::map<int64_t, float>;

// What a job has written for TensorBoard, and its metrics.
struct Board {
  std::vector<ReadEvent> events;
  Events metrics;
};

Board RunWithBoard(const std::string& name, const Flags& flags) {
  const std::string folder = NewFolder("board_" + name);
  Board board;
  board.metrics =
      RunJobForEvents(Joined(flags, {"--tensorboard_dir=" + folder}));
  board.events = EventsIn(folder);
  return board;
}

// The histograms of each step, by tag.
using StepHistograms = std::map<int64_t, std::map<std::string, ReadHistogram>>;

StepHistograms HistogramsIn(const std::vector<ReadEvent>& events) {
  StepHistograms histograms;
  for (const ReadEvent& each : events) {
    if (!each.histograms.empty()) histograms[each.step] = each.histograms;
  }
  return histograms;
}

void ExpectCurve(const Board& board, const std::string& event,
                 const std::string& field, const std::string& tag,
                 int64_t step = 0) {
  Points expected;
  for (const auto& each : EventsOf(board.metrics, event)) {
    expected[step > 0 ? step : each["step"].get<int64_t>()] =
        each[field].get<float>();
  }
  EXPECT_THAT(expected, Not(IsEmpty()));
  EXPECT_EQ(ScalarsIn(board.events, tag), expected) << tag;
}

TEST(TensorBoardTest, CurvesAreThoseOfTheMetricsFile) {
  const Board board = RunWithBoard("curves", Small("--peak_tflops=0.001"));
  const std::map<std::string, std::string> curves = {
      {"train/loss", "loss"},
      {"train/accuracy", "accuracy"},
      {"train/lr", "learning_rate"},
      {"train/grad_norm", "gradient_norm"},
      {"train/samples_per_sec", "samples_per_s"},
      {"perf/step_ms", "step_ms"},
      {"memory/rss_mib", "rss_mib"}};
  for (const auto& [tag, field] : curves) {
    ExpectCurve(board, "step", field, tag);
  }
  for (const auto& step : EventsOf(board.metrics, "step")) {
    EXPECT_FLOAT_EQ(
        ScalarsIn(board.events, "train/mfu")[step["step"].get<int64_t>()],
        100 * step["mfu"].get<float>());
  }
  ExpectCurve(board, "eval", "loss", "val/loss", 6);
  ExpectCurve(board, "eval", "accuracy", "val/accuracy", 6);
  EXPECT_THAT(ScalarsIn(board.events, "perf/step_ms_rank_0"), IsEmpty());
  const ReadEvent& settings = board.events[2];
  EXPECT_EQ(settings.step, 0);
  EXPECT_THAT(settings.texts.at("settings"),
              HasSubstr("\n| model | mlp_small |\n"));
}

TEST(TensorBoardTest, ATextHasItsPerplexityAndTokens) {
  const Board board =
      RunWithBoard("text", Tiny("gpt_tiny_tied", "--dtype=bf16 --z_loss=0.01"));
  ExpectCurve(board, "step", "perplexity", "train/perplexity");
  ExpectCurve(board, "step", "tokens_per_s", "train/tokens_per_sec");
  ExpectCurve(board, "eval", "perplexity", "val/perplexity", kTinySteps);
  EXPECT_THAT(ScalarsIn(board.events, "train/z_loss"), SizeIs(kTinySteps));
  EXPECT_THAT(ScalarsIn(board.events, "train/samples_per_sec"), IsEmpty());
}

TEST(TensorBoardTest, HistogramsAreOfAllParameters) {
  const Board board = RunWithBoard("histograms", Small("--histograms_every=4"));
  const StepHistograms histograms = HistogramsIn(board.events);
  ASSERT_THAT(histograms, SizeIs(1));
  const auto& [step, of_step] = *histograms.begin();
  EXPECT_EQ(step, 4);
  // Eight layers with a weight and a bias.
  EXPECT_THAT(of_step, SizeIs(2 * 2 * 8));
  double weights = 0, gradients = 0;
  for (const auto& [tag, histogram] : of_step) {
    (tag.substr(0, 8) == "weights/" ? weights : gradients) += histogram.count;
  }
  EXPECT_EQ(weights, 7 * (64 * 64 + 64) + 64 * 10 + 10);
  EXPECT_EQ(gradients, weights);
}

// The norm is that of the gradients that histograms show.
TEST(TensorBoardTest, GradientsAreThoseOfTheStepAsTheyWereClipped) {
  const Board board = RunWithBoard(
      "clipped", Small("--histograms_every=1 --clip_grad_norm=0.01"));
  for (const auto& [step, of_step] : HistogramsIn(board.events)) {
    double squares = 0;
    for (const auto& [tag, histogram] : of_step) {
      if (tag.substr(0, 10) == "gradients/") {
        squares += histogram.sum_of_squares;
      }
    }
    EXPECT_GT(ScalarsIn(board.events, "train/grad_norm")[step], 0.02f);
    EXPECT_NEAR(std::sqrt(squares), 0.01, 1e-5) << step;
  }
}

std::vector<std::string> Layouts() {
  return {"--nproc_per_node=2",
          "--nproc_per_node=2 --shard=optimizer",
          "--devices_per_rank=2 --strategy=pipeline",
          "--nproc_per_node=2 --pipe=2",
          "--nproc_per_node=4 --pipe=2",
          "--device=sim --sim_async"};
}

TEST(TensorBoardTest, EveryLayoutHasTheHistogramsOfTheWholeModel) {
  const Flags job = Small(
      "--reproducible --microbatch_size=2 "
      "--histograms_every=3");
  const StepHistograms expected =
      HistogramsIn(RunWithBoard("one_device", job).events);
  ASSERT_THAT(expected, SizeIs(2));
  for (const std::string& layout : Layouts()) {
    const Board board = RunWithBoard("layout", Joined(job, Words(layout)));
    EXPECT_EQ(HistogramsIn(board.events), expected) << layout;
  }
}

// Ranks have parts of a shared layer, and the parts' histograms are merged.
TEST(TensorBoardTest, PartsOfRanksHaveOneHistogram) {
  const Flags job = Tiny("gpt_tiny_tied",
                         "--histograms_every=1 --max_steps=1 "
                         "--optimizer=adamw --adam_eps=0.01");
  const auto expected = HistogramsIn(RunWithBoard("whole", job).events)[1];
  ASSERT_THAT(expected, Not(IsEmpty()));
  for (const std::string layout :
       {"--tensor=2", "--tensor=2 --nproc_per_node=4",
        "--tensor=2 --nproc_per_node=4 --pipe=2", "--shard=parameters"}) {
    const Board board = RunWithBoard(
        "parts", Joined(job, {"--nproc_per_node=2"}, Words(layout)));
    const auto found = HistogramsIn(board.events)[1];
    for (const auto& [tag, histogram] : expected) {
      // Gradients of what ranks have shares of are not kept.
      if (layout == "--shard=parameters" && tag.substr(0, 9) == "gradients") {
        continue;
      }
      ASSERT_EQ(found.count(tag), 1u) << layout << ": " << tag;
      const ReadHistogram& merged = found.at(tag);
      EXPECT_EQ(merged.count, histogram.count) << layout << ": " << tag;
      EXPECT_NEAR(merged.sum_of_squares, histogram.sum_of_squares,
                  1e-4 * histogram.sum_of_squares + 1e-12)
          << layout << ": " << tag;
    }
  }
}

// The misclassified samples of each evaluation: their table, and the images by
// tag.
using ImagesByTag = std::map<std::string, std::string>;
using StepImages = std::map<int64_t, std::pair<std::string, ImagesByTag>>;

StepImages ImagesIn(const std::vector<ReadEvent>& events) {
  StepImages images;
  for (const ReadEvent& each : events) {
    const auto text = each.texts.find("misclassified");
    if (text == each.texts.end()) continue;
    images[each.step] = {text->second, each.images};
  }
  return images;
}

TEST(TensorBoardTest, MisclassifiedSamplesAreImagesTheSameInEveryLayout) {
  const std::string saved = NewFolder("board_images");
  const Flags job = Small(
      "--reproducible --microbatch_size=2 --eval_every=3 "
      "--misclassified_images=100");
  const Board board =
      RunWithBoard("images", Joined(job, {"--save_dir=" + saved}));
  const StepImages expected = ImagesIn(board.events);
  ASSERT_THAT(expected, SizeIs(2));
  for (const auto& tested : EventsOf(board.metrics, "eval")) {
    const auto& [table, images] = expected.at(tested["step"].get<int64_t>());
    const double wrong =
        tested["count"].get<double>() * (1 - tested["accuracy"].get<double>());
    EXPECT_THAT(images, SizeIs(static_cast<size_t>(std::lround(wrong))));
    EXPECT_THAT(table, HasSubstr("| image | sample | class | predicted |"));
  }
  EXPECT_THAT(expected.at(3).second.at("misclassified/1").substr(0, 8),
              "\x89PNG\r\n\x1a\n");
  for (const std::string& layout : Layouts()) {
    const Board other =
        RunWithBoard("images_layout", Joined(job, Words(layout)));
    EXPECT_EQ(ImagesIn(other.events), expected) << layout;
  }
  // The last step's, by its checkpoint.
  const Board alone = RunWithBoard(
      "images_alone",
      Small("--eval_only --misclassified_images=100 --resume=" + saved));
  EXPECT_EQ(ImagesIn(alone.events).at(6), expected.at(6));
}

TEST(TensorBoardTest, MisclassifiedSamplesHaveTheirClassesNames) {
  const Board board = RunWithBoard(
      "names", Joined(Words("--model=mlp_small --batch_size=64 --max_steps=1 "
                            "--eval_batches=1 --intra_op_threads=1 --save_dir= "
                            "--misclassified_images=2"),
                      TestBackendFlags()));
  const std::string name = "[A-Z][A-Za-z/ -]+";
  const std::string row = " \\| [0-9]+ \\| " + name + " \\| " + name + " \\|\n";
  EXPECT_THAT(ImagesIn(board.events).at(1).first,
              ContainsRegex("\\| 1" + row + "\\| 2" + row));
}

TEST(TensorBoardTest, EachReplicasLossAndTimeAreCurves) {
  const Board board =
      RunWithBoard("ranks", Small("--nproc_per_node=2 --log_every=2"));
  const Points loss = ScalarsIn(board.events, "train/loss");
  const Points zero = ScalarsIn(board.events, "train/loss_rank_0");
  const Points one = ScalarsIn(board.events, "train/loss_rank_1");
  ASSERT_THAT(loss, SizeIs(3));
  ASSERT_THAT(zero, SizeIs(3));
  ASSERT_THAT(one, SizeIs(3));
  for (const auto& [step, mean] : loss) {
    EXPECT_NEAR((zero.at(step) + one.at(step)) / 2, mean, 1e-6);
    EXPECT_NE(zero.at(step), one.at(step));
  }
  EXPECT_EQ(ScalarsIn(board.events, "perf/step_ms_rank_0"),
            ScalarsIn(board.events, "perf/step_ms"));
  EXPECT_THAT(ScalarsIn(board.events, "perf/step_ms_rank_1"), SizeIs(3));
}

TEST(TensorBoardTest, OfAPipelinesRanksTheLastOneHasTheLoss) {
  const Board board =
      RunWithBoard("pipeline_ranks", Small("--nproc_per_node=2 --pipe=2"));
  EXPECT_THAT(ScalarsIn(board.events, "train/loss_rank_0"), IsEmpty());
  EXPECT_EQ(ScalarsIn(board.events, "train/loss_rank_1"),
            ScalarsIn(board.events, "train/loss"));
  EXPECT_THAT(ScalarsIn(board.events, "perf/step_ms_rank_0"), SizeIs(6));
}

TEST(TensorBoardTest, AJobOfServersHasTheCurvesOfAll) {
  const Board board = RunWithBoard(
      "servers", Small("--strategy=parameter_server --nproc_per_node=3"));
  ExpectCurve(board, "eval", "loss", "val/loss",
              EventsOf(board.metrics, "step").back()["step"].get<int64_t>());
  EXPECT_THAT(ScalarsIn(board.events, "train/loss"), Not(IsEmpty()));
}

TEST(TensorBoardTest, AJobThatGoesOnDropsTheStepsThatItDoesOnceMore) {
  const std::string saved = NewFolder("board_saved");
  const std::string folder = NewFolder("board_resumed");
  const Flags job =
      Joined(Small("--save_every=3"),
             {"--save_dir=" + saved, "--tensorboard_dir=" + folder});
  RunJobForEvents(job);
  RunJobForEvents(
      Joined(job, {"--save_dir=", "--save_every=0",
                   "--resume=" + SavedStep(saved, 3), "--epochs=2"}));
  const std::vector<std::string> files = EventFilesIn(folder);
  ASSERT_THAT(files, SizeIs(2));
  std::vector<ReadEvent> later;
  for (const std::string& each : RecordsIn(files[1])) {
    later.push_back(ParseEvent(each));
  }
  EXPECT_TRUE(later[1].starts_session);
  EXPECT_EQ(later[1].step, 4);
  EXPECT_EQ(later[2].texts.count("settings"), 1u);
  EXPECT_EQ(later[2].step, 3);
  const Points losses = ScalarsIn(later, "train/loss");
  ASSERT_THAT(losses, SizeIs(9));
  EXPECT_EQ(losses.begin()->first, 4);
  EXPECT_EQ(losses.rbegin()->first, 12);
  // The first job's file is as it was.
  const ReadEvent first = ParseEvent(RecordsIn(files[0])[1]);
  EXPECT_TRUE(first.starts_session);
  EXPECT_EQ(first.step, 0);
}

}  // namespace
}  // namespace tandem::tensorboard_test
