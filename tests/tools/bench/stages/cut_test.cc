#include "tools/bench/stages/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/layer_list.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/rank/inputs.h"

namespace tandem {
namespace {

using testing::ElementsAre;

TEST(ProfileMicrobatch, TakesTheLargestPartOfABatch) {
  Workload workload = *WorkloadNamed("mlp_small");
  workload.batch_size = 5;
  const LayerList layers = MakeLayers(*MakeSpecs(workload), kInputsSeed);
  const auto profile =
      ProfileMicrobatch(layers, MakeBatch(workload, "batch."), 2);
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_EQ(profile->layers.size(), layers.size());
  EXPECT_EQ(profile->input_bytes, 3 * 64 * 4);
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
}  // namespace tandem
