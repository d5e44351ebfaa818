#include "tools/bench/stages/cut.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <memory>

#include "core/model/batch.h"
#include "core/model/layer_list.h"
#include "parallel/partition/model_profile.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/rank/inputs.h"

namespace tandem::cut_test {
namespace {

using testing::ElementsAre;

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
  // As long as all the others together.
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
}  // namespace tandem::cut_test
