// Stages that wait, of which a time can be known from below alone; and cuts by
// measured times.

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/model/batch.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "models/layers/basic_layers.h"
#include "parallel/balance/cut.h"
#include "parallel/partition/balance.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/rank/inputs.h"
#include "tools/bench/rank/trainer.h"
#include "tools/bench/stages/calibration.h"

namespace tandem::stages_test {
namespace {

using testing::ElementsAre;

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
    return Make(layers, "1f1b", {2, 1, 3}, batch, places).status();
  };
  EXPECT_THAT(said(specs, BatchOf(2), 2),
              Says("a batch of 2 samples gives 2 microbatches, but "
                   "schedule 1f1b has 3"));
  EXPECT_THAT(said(specs, BatchOf(7), 1), Says("2 devices"));
  EXPECT_THAT(said({specs[0], LinearLayer("bad", 5, 4)}, BatchOf(7), 2),
              Says("layer bad"));
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
  EXPECT_THAT((*stages)->Measure().status(), Says("layer failing: no more"));
}

TEST(ProfileMicrobatch, TakesTheLargestPartOfABatch) {
  Workload workload = *WorkloadNamed("mlp_small");
  workload.batch_size = 5;
  const LayerList layers = MakeLayers(*MakeSpecs(workload), kInputsSeed);
  const auto profile = ProfileMicrobatch(layers, MakeBatch(workload, "batch."),
                                         *MakeSchedule("1f1b", {2, 1, 2}));
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_EQ(profile->layers.size(), layers.size());
  EXPECT_EQ(profile->input_bytes, 3 * 64 * 4);
}

// LibTorch's layers leave nothing to a sink: in one part, what comes after the
// input's gradient has nothing to do.
TEST(ProfileMicrobatch, HasBackwardAsTheScheduleDoesIt) {
  LayerList layers;
  for (const char* name : {"first", "second", "third"}) {
    const auto linear = std::make_shared<torch::nn::LinearImpl>(512, 512);
    layers.push_back({name, linear, [linear](const at::Tensor& x) {
                        return linear->forward(x);
                      }});
  }
  const Batch batch = {at::ones({512, 512}), at::zeros({512}, at::kLong), 512};
  const auto second = [&](const char* schedule) {
    const auto profile =
        ProfileMicrobatch(layers, batch, *MakeSchedule(schedule, {2, 1, 2}));
    EXPECT_TRUE(profile.ok()) << profile.status();
    return profile.ok() ? profile->layers[1] : LayerProfile();
  };
  const LayerProfile split = second("zb_h1");
  EXPECT_GT(split.backward_weight, split.backward_input / 10);
  const LayerProfile whole = second("1f1b");
  EXPECT_LT(whole.backward_weight, whole.backward_input / 4);
}

TEST(CutByProfile, MakesStagesThatTakeAsLong) {
  Workload workload = *WorkloadNamed("mlp_small");
  const LayerSpecs specs = *MakeSpecs(workload);
  ModelProfile profile;
  for (const LayerSpec& each : specs) {
    LayerProfile layer;
    layer.name = each.name;
    layer.forward = 1;
    profile.layers.push_back(layer);
  }
  // The first layer takes as long as all the others together.
  profile.layers.front().forward = static_cast<double>(specs.size() - 1);
  const Schedule schedule = *MakeSchedule("1f1b", {2, 1, 4});
  EXPECT_THAT(*CutByProfile(specs, profile, schedule, {}), ElementsAre(1));
}

TEST(MeasureSending, TakesAWhile) {
  const auto sending = MeasureSending();
  ASSERT_TRUE(sending.ok()) << sending.status();
  EXPECT_GT(sending->seconds_per_message + sending->seconds_per_byte, 0);
}

}  // namespace
}  // namespace tandem::stages_test
