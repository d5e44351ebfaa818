// Of stages that wait: a time can be known from below alone.

#include "tools/bench/stages/calibration.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "models/layers/basic_layers.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedules.h"

namespace tandem::calibration_test {
namespace {

using testing::HasSubstr;

constexpr int kRuns = 3;  // of the schedule's actions, in one measurement

void Wait(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// What all the copies of a layer see.
struct Log {
  std::mutex mutex;
  std::vector<int64_t> rows;
  std::vector<double> weights;
  std::set<std::thread::id> threads;
};

// x -> weight * x, after a while.
LayerSpec Slow(const std::string& name, double forward, double backward,
               Log* log) {
  const auto make = [=](uint64_t) {
    auto module = std::make_shared<torch::nn::Module>();
    module->register_parameter("weight", at::ones({1}));
    const auto run = [=](const at::Tensor& x) {
      const at::Tensor weight = module->parameters()[0];
      {
        const std::lock_guard<std::mutex> lock(log->mutex);
        log->rows.push_back(x.size(0));
        log->weights.push_back(weight.item<double>());
        log->threads.insert(std::this_thread::get_id());
      }
      Wait(forward);
      at::Tensor y = weight * x;
      if (y.requires_grad()) {
        y.register_hook([backward](const at::Tensor& gradient) {
          Wait(backward);
          return gradient;
        });
      }
      return y;
    };
    return Layer{name, module, run};
  };
  return {name, "Slow", make};
}

Batch BatchOf(int64_t size) {
  return {at::randn({size, 4}), at::arange(size) % 4, size};
}

class StageCalibrationTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<StageCalibration>> Make(
      const LayerSpecs& specs, const std::string& schedule,
      const ScheduleShape& shape, const Batch& batch, int places) {
    places_.clear();
    std::vector<DeviceThread*> all;
    for (int i = 0; i < places; ++i) {
      places_.push_back(std::make_unique<DeviceThread>(c10::Device(c10::kCPU)));
      all.push_back(places_.back().get());
    }
    const Schedule made = *MakeSchedule(schedule, shape);
    const auto count = static_cast<int64_t>(specs.size());
    return StageCalibration::Create(
        specs, made, *UniformCuts(count, made.stages), batch, all);
  }

  std::vector<std::unique_ptr<DeviceThread>> places_;
};

TEST_F(StageCalibrationTest, EachStageHasItsOwnTimes) {
  Log a, b, c;
  const LayerSpecs specs = {Slow("a", 0.01, 0.002, &a),
                            Slow("b", 0.002, 0.004, &b),
                            Slow("c", 0.001, 0.015, &c)};
  const auto stages = Make(specs, "1f1b", {3, 1, 5}, BatchOf(7), 3);
  ASSERT_TRUE(stages.ok()) << stages.status();
  const auto times = (*stages)->Measure();
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->stages.size(), 3u);
  EXPECT_GE(times->stages[0].forward, 0.01);
  EXPECT_GE(times->stages[0].backward_input, 0.002);
  EXPECT_GE(times->stages[1].forward, 0.002);
  EXPECT_GE(times->stages[1].backward_input, 0.004);
  EXPECT_GE(times->stages[2].forward, 0.001);
  EXPECT_GE(times->stages[2].backward_input, 0.015);
  // A joint backward has no second part.
  for (const StageCost& each : times->stages) {
    EXPECT_EQ(each.backward_weight, 0);
  }
  ASSERT_EQ(times->optimizer.size(), 3u);
  for (double each : times->optimizer) EXPECT_GT(each, 0);
}

TEST_F(StageCalibrationTest, EveryMicrobatchIsRunOnTheStagesOwnThread) {
  Log a, b;
  const LayerSpecs specs = {Slow("a", 0, 0, &a), Slow("b", 0, 0, &b)};
  const auto stages = Make(specs, "1f1b", {2, 1, 5}, BatchOf(7), 2);
  ASSERT_TRUE(stages.ok()) << stages.status();
  ASSERT_TRUE((*stages)->Measure().ok());
  ASSERT_TRUE((*stages)->Measure().ok());
  for (const Log* log : {&a, &b}) {
    // Once for what the next stage is given, then the schedule.
    const std::vector<int64_t> one = {2, 2, 1, 1, 1};
    std::vector<int64_t> expected;
    for (int i = 0; i < 1 + 2 * kRuns; ++i) {
      expected.insert(expected.end(), one.begin(), one.end());
    }
    EXPECT_EQ(log->rows, expected);
    EXPECT_EQ(log->threads.size(), 2u);
    // Measured as often as one likes, the model stays as it was.
    for (double weight : log->weights) EXPECT_EQ(weight, 1);
  }
}

TEST_F(StageCalibrationTest, AStageOnTheSameDeviceIsAnother) {
  Log logs[4];
  LayerSpecs specs;
  for (int i = 0; i < 4; ++i) {
    specs.push_back(
        Slow(std::string(1, static_cast<char>('a' + i)), 0.001, 0, &logs[i]));
  }
  const auto stages = Make(specs, "interleaved_1f1b", {2, 2, 4}, BatchOf(9), 2);
  ASSERT_TRUE(stages.ok()) << stages.status();
  const auto times = (*stages)->Measure();
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->stages.size(), 4u);
  EXPECT_EQ(times->optimizer.size(), 2u);
  for (const StageCost& each : times->stages) EXPECT_GE(each.forward, 0.001);
}

TEST_F(StageCalibrationTest, ASplitBackwardHasTwoParts) {
  const LayerSpecs specs = {LinearLayer("a", 4, 4), LinearLayer("b", 4, 4)};
  const auto stages = Make(specs, "zb_h1", {2, 1, 3}, BatchOf(7), 2);
  ASSERT_TRUE(stages.ok()) << stages.status();
  const auto times = (*stages)->Measure();
  ASSERT_TRUE(times.ok()) << times.status();
  for (const StageCost& each : times->stages) {
    EXPECT_GT(each.forward, 0);
    EXPECT_GT(each.backward_input, 0);
    EXPECT_GT(each.backward_weight, 0);
  }
}

TEST_F(StageCalibrationTest, WhatDoesNotFitIsRefused) {
  Log log;
  const LayerSpecs specs = {Slow("a", 0, 0, &log), Slow("b", 0, 0, &log)};
  const auto said = [&](const LayerSpecs& layers, const Batch& batch,
                        int places) {
    return std::string(
        Make(layers, "1f1b", {2, 1, 3}, batch, places).status().message());
  };
  EXPECT_THAT(said(specs, BatchOf(2), 2),
              HasSubstr("a batch of 2 samples gives 2 microbatches, but "
                        "schedule 1f1b has 3"));
  EXPECT_THAT(said(specs, BatchOf(7), 1), HasSubstr("2 devices"));
  EXPECT_THAT(said({specs[0], LinearLayer("bad", 5, 4)}, BatchOf(7), 2),
              HasSubstr("layer bad"));
}

TEST_F(StageCalibrationTest, WhatFailsInAMeasurementIsNamed) {
  // The fourth call is the first of the measurement.
  auto calls = std::make_shared<int>(0);
  const LayerSpec failing = {
      "failing", "Failing", [calls](uint64_t) {
        return Layer{"failing", nullptr, [calls](const at::Tensor& x) {
                       TORCH_CHECK(++*calls <= 3, "no more");
                       return x;
                     }};
      }};
  Log log;
  const auto stages =
      Make({Slow("a", 0, 0, &log), failing}, "1f1b", {2, 1, 3}, BatchOf(7), 2);
  ASSERT_TRUE(stages.ok()) << stages.status();
  EXPECT_THAT(std::string((*stages)->Measure().status().message()),
              HasSubstr("layer failing: no more"));
}

}  // namespace
}  // namespace tandem::calibration_test
