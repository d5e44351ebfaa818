// A pipeline computes what the model in one piece does.

#include "parallel/pipeline/executor.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/layer_list.h"
#include "core/testing/device_types.h"
#include "models/classification_loss.h"
#include "parallel/pipeline/model.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/schedule/schedules.h"
#include "tests/models/rounding.h"
#include "tests/parallel/pipeline/rank_pipeline.h"

namespace tandem::executor_test {
namespace {

// The rounding of gradients up to 1, whose sums go another way.
double Rounding() { return RoundingTolerance(at::kFloat, 128, 1); }

constexpr int kSteps = 3;
constexpr double kRate = 0.1;

void Descend(const NamedTensors& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& each : parameters) {
    at::Tensor parameter = each.second;
    parameter.sub_(parameter.grad() * kRate);
    parameter.mutable_grad().reset();
  }
}

// The model in one piece, microbatch by microbatch.
double StepOfOnePiece(const LayerList& layers,
                      const std::vector<Batch>& batches) {
  double size = 0;
  Score score;
  for (const Batch& each : batches) size += static_cast<double>(each.size);
  for (const Batch& each : batches) {
    const LossResult result =
        CrossEntropy(Forward(layers, each.inputs), each.targets);
    const double weight = static_cast<double>(each.size) / size;
    (weight == 1 ? result.loss : result.loss.mul(weight)).backward();
    score += result.score;
  }
  Descend(NamedParameters(layers));
  return score.loss();
}

class PipelineExecutorTest : public ExecutorFixture {
 protected:
  static void ExpectTransparent(const Schedule& schedule, int64_t batch) {
    const LayerList whole = MakeLayers(Specs(), kSeed);
    auto executor = Make(schedule, Specs());
    ASSERT_TRUE(executor.ok()) << executor.status();
    const NamedTensors found = NamedParameters((*executor)->stages());
    for (int step = 0; step < kSteps; ++step) {
      const auto batches = BatchesOf(batch, schedule.microbatches, step);
      const double loss = StepOfOnePiece(whole, batches);
      const auto score = (*executor)->TrainStep(batches);
      ASSERT_TRUE(score.ok()) << score.status();
      EXPECT_EQ(score->loss(), loss);
      Descend(found);
    }
    const NamedTensors expected = NamedParameters(whole);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(Close(found[i].second.cpu(), expected[i].second, schedule))
          << expected[i].first;
    }
  }

  // Sums of gradients in the schedule's order: the same bits where that is the
  // microbatches' own.
  static bool Close(const at::Tensor& a, const at::Tensor& b,
                    const Schedule& schedule) {
    return schedule.name == "gpipe" ? a.allclose(b, 0, Rounding())
                                    : at::equal(a, b);
  }
};

TEST_P(PipelineExecutorTest, IsTransparent) {
  int cells = 0;
  for (const std::string& name : ScheduleNames()) {
    for (int devices : {1, 2, 3}) {
      for (int chunks : {1, 2}) {
        for (int microbatches : {1, 2, 3, 6}) {
          const auto schedule =
              MakeSchedule(name, {devices, chunks, microbatches});
          if (!schedule.ok()) continue;
          SCOPED_TRACE(absl::StrCat(name, ", ", devices, " devices, ", chunks,
                                    " chunks, ", microbatches,
                                    " microbatches"));
          ExpectTransparent(*schedule, /*batch=*/13);
          ++cells;
        }
      }
    }
  }
  std::cout << cells << " cells: schedule x devices x chunks x microbatches\n";
  EXPECT_EQ(cells, 12 + 12 + 2 * (4 + 2 + 2) + 24 + 12 + 12);
}

// What the stages' gradients are told in a step of two devices.
class NotedGradients {
 public:
  NotedGradients(int stages, int microbatches) : finished_(2, 0) {
    for (int i = 0; i < stages; ++i) {
      stages_.push_back(std::make_unique<OfStage>(microbatches));
    }
  }

  StepGradients step_gradients() {
    StepGradients gradients;
    for (const auto& each : stages_) gradients.of_stages.push_back(each.get());
    gradients.after_device = [this](int device) {
      for (const auto& each : stages_) finished_before_ += each->finished;
      ++finished_[static_cast<size_t>(device)];
      return absl::OkStatus();
    };
    return gradients;
  }

  void ExpectOneStep() const {
    for (const auto& each : stages_) {
      EXPECT_EQ(each->lasts, 1);
      EXPECT_EQ(each->weights, 1);
    }
    ExpectTheEnd();
  }

  void ExpectNothingButTheEnd() const {
    for (const auto& each : stages_) EXPECT_EQ(each->told, 0);
    ExpectTheEnd();
  }

 private:
  struct OfStage : StageGradients {
    explicit OfStage(int count) : microbatches(count) {}
    absl::Status Prepare() override { return absl::OkStatus(); }
    absl::Status Before(const Action&, bool) override {
      ++told;
      return absl::OkStatus();
    }
    absl::Status After(const Action& action, bool last) override {
      EXPECT_LT(action.microbatch, microbatches);
      EXPECT_EQ(finished, 0);
      lasts += last ? 1 : 0;
      return absl::OkStatus();
    }
    absl::Status BeforeWeights(const Action&) override {
      EXPECT_EQ(lasts, 0);
      ++weights;
      return absl::OkStatus();
    }
    absl::Status Finish() override {
      ++finished;
      return absl::OkStatus();
    }

    const int microbatches;
    int told = 0;
    int lasts = 0;
    int weights = 0;
    std::atomic<int> finished{0};
  };

  void ExpectTheEnd() const {
    for (const auto& each : stages_) EXPECT_EQ(each->finished, 1);
    EXPECT_THAT(finished_, testing::Each(1));
    // A device's own stages come before it.
    EXPECT_GE(finished_before_, static_cast<int>(stages_.size()));
  }

  std::vector<std::unique_ptr<OfStage>> stages_;
  std::vector<int> finished_;  // by device
  std::atomic<int> finished_before_{0};
};

// A short step, like at the end of a data set, and a whole one afterwards.
TEST_P(PipelineExecutorTest, AStepMayHaveFewerMicrobatches) {
  for (const std::string& name : ScheduleNames()) {
    const int chunks =
        name[0] == 'i' || name[0] == 'l' || name == "zb_v" ? 2 : 1;
    const auto schedule = MakeSchedule(name, {2, chunks, 4});
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const LayerList whole = MakeLayers(Specs(), kSeed);
    auto executor = Make(*schedule, Specs());
    ASSERT_TRUE(executor.ok()) << executor.status();
    const NamedTensors found = NamedParameters((*executor)->stages());
    for (int count : {1, 3, 4, 2}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", count, " microbatches"));
      const auto batches = BatchesOf(7, count, count);
      const double loss = StepOfOnePiece(whole, batches);
      NotedGradients noted(schedule->stages, count);
      const auto score =
          (*executor)->TrainStep(batches, {}, noted.step_gradients());
      ASSERT_TRUE(score.ok()) << score.status();
      EXPECT_NEAR(score->loss(), loss, name == "gpipe" ? Rounding() : 0);
      noted.ExpectOneStep();
      Descend(found);
      const NamedTensors expected = NamedParameters(whole);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(Close(found[i].second.cpu(), expected[i].second, *schedule))
            << expected[i].first;
      }
    }
  }
}

TEST_P(PipelineExecutorTest, AStepWithoutMicrobatchesOnlyFinishes) {
  const auto executor = Make(*MakeSchedule("1f1b", {2, 1, 4}), Specs());
  ASSERT_TRUE(executor.ok()) << executor.status();
  NotedGradients noted(2, /*microbatches=*/0);
  const auto score = (*executor)->TrainStep({}, {}, noted.step_gradients());
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->count, 0);
  noted.ExpectNothingButTheEnd();
}

TEST_P(PipelineExecutorTest, InferenceGivesTheOutputsOfTheModelInOnePiece) {
  const LayerList whole = MakeLayers(Specs(), kSeed);
  for (const std::string& name : ScheduleNames()) {
    const int chunks = name == "zb_v" ? 2 : 1;
    const auto executor = Make(*MakeSchedule(name, {2, chunks, 4}), Specs());
    ASSERT_TRUE(executor.ok()) << executor.status();
    for (int count : {1, 3, 4}) {
      const auto batches = BatchesOf(9, count, 1);
      const auto inference = (*executor)->Infer(batches, true);
      ASSERT_TRUE(inference.ok()) << inference.status();
      ASSERT_EQ(inference->outputs.size(), batches.size());
      Score score;
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < batches.size(); ++i) {
        const at::Tensor expected = Forward(whole, batches[i].inputs);
        EXPECT_TRUE(inference->outputs[i].cpu().equal(expected));
        EXPECT_FALSE(inference->outputs[i].requires_grad());
        score += CrossEntropy(expected, batches[i].targets).score;
      }
      EXPECT_EQ(inference->score.loss(), score.loss());
      EXPECT_EQ(inference->score.count, 9);
    }
  }
}

TEST_P(PipelineExecutorTest, HoldsAsManyMicrobatchesAsTheScheduleSays) {
  for (const std::string& name : ScheduleNames()) {
    const int chunks = name == "zb_v" ? 2 : 1;
    const auto executor = Make(*MakeSchedule(name, {2, chunks, 6}), Specs());
    ASSERT_TRUE(executor.ok()) << executor.status();
    ASSERT_TRUE((*executor)->TrainStep(BatchesOf(12, 6, 1)).ok());
    EXPECT_EQ((*executor)->peak_activations(),
              (*executor)->facts().peak_activations)
        << name;
  }
}

TEST_P(PipelineExecutorTest, TheTimelineHasEveryAction) {
  const auto schedule = MakeSchedule("zb_h1", {2, 1, 4});
  const auto executor = Make(*schedule, Specs());
  ASSERT_TRUE(executor.ok()) << executor.status();
  ASSERT_TRUE((*executor)->TrainStep(BatchesOf(8, 4, 1)).ok());
  const PipelineTimeline& timeline = (*executor)->timeline();
  ASSERT_EQ(timeline.size(), 2u);
  for (size_t device = 0; device < 2; ++device) {
    ASSERT_EQ(timeline[device].size(), schedule->actions[device].size());
    ActionTime::Clock::time_point last;
    for (size_t i = 0; i < timeline[device].size(); ++i) {
      const ActionTime& time = timeline[device][i];
      EXPECT_TRUE(time.action == schedule->actions[device][i]);
      EXPECT_LE(last, time.came);
      EXPECT_LE(time.came, time.started);
      EXPECT_LE(time.started, time.computed);
      EXPECT_LE(time.computed, time.ended);
      last = time.ended;
    }
  }
}

TANDEM_ON_DEVICE_TYPES(PipelineExecutorTest);

}  // namespace
}  // namespace tandem::executor_test
