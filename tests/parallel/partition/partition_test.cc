// With partition_table's: one model, its cuts and what is printed of them.

#include "parallel/partition/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/testing/statuses.h"
#include "parallel/partition/balance.h"
#include "parallel/partition/table.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/simulation.h"

namespace tandem::partition_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

LayerProfile Costs(const std::string& name, double ms, bool weights,
                   int64_t state, int64_t activations, int64_t output) {
  LayerProfile layer;
  layer.name = name;
  layer.forward = ms / 1e3;
  layer.backward_input = ms / 1e3;
  layer.backward_weight = weights ? ms / 1e3 : 0;
  layer.state_bytes = state;
  layer.activation_bytes = activations;
  layer.output_bytes = output;
  return layer;
}

ModelOutline Model() {
  ModelProfile profile;
  profile.input_bytes = 1024;
  profile.layers = {Costs("fc1", 1, true, 1200, 0, 4096),
                    Costs("relu1", 0.5, false, 0, 4096, 4096),
                    Costs("fc2", 2, true, 2400, 0, 2048),
                    Costs("head", 1, true, 1200, 512, 1024)};
  return {{"fc1", "relu1", "fc2", "head"},
          {"Linear", "ReLU", "Linear", "Head"},
          {100, 0, 200, 100},
          profile};
}

absl::StatusOr<Cuts> CutsOf(const std::string& balance,
                            const Schedule& schedule,
                            const ModelOutline& model = Model(),
                            const PipelineDevices& devices = {}) {
  return PartitionModel(*ParseBalance(balance), model, schedule, devices);
}

Schedule TwoStages(int microbatches = 4) {
  return *OneFOneB({2, 1, microbatches});
}

TEST(ParseBalance, KnowsItsWords) {
  EXPECT_EQ(ParseBalance("")->kind, BalanceKind::kParameters);
  EXPECT_EQ(ParseBalance("uniform")->kind, BalanceKind::kUniform);
  EXPECT_EQ(ParseBalance("profile")->kind, BalanceKind::kProfile);
  EXPECT_EQ(ParseBalance("type:a:b|c")->text, "a:b|c");
  EXPECT_EQ(ParseBalance("fc2,head")->kind, BalanceKind::kCuts);
  EXPECT_EQ(ParseBalance("fc2,head")->text, "fc2,head");
  EXPECT_THAT(ParseBalance("type:(").status(),
              Says("balance by type:(: not a regular expression"));
  EXPECT_THAT(ParseBalance("type:").status(), Says("expected an expression"));
}

TEST(Partition, ByEachRule) {
  EXPECT_THAT(*CutsOf("uniform", TwoStages()), ElementsAre(2));
  EXPECT_THAT(*CutsOf("parameters", TwoStages()), ElementsAre(3));
  EXPECT_THAT(*CutsOf("profile", TwoStages()), ElementsAre(2));
  EXPECT_THAT(*CutsOf("type:Linear", TwoStages()), ElementsAre(2));
  EXPECT_THAT(*CutsOf("type:^ReLU|Head", TwoStages()), ElementsAre(3));
  EXPECT_THAT(*CutsOf("head", TwoStages()), ElementsAre(3));
  EXPECT_THAT(*CutsOf("1,fc2", *OneFOneB({3, 1, 4})), ElementsAre(1, 2));
  EXPECT_THAT(*CutsOf("uniform", *ZeroBubbleV({2, 2, 4})),
              ElementsAre(1, 2, 3));
}

TEST(Partition, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(CutsOf("uniform", *OneFOneB({5, 1, 4})).ok());
  EXPECT_THAT(CutsOf("unifrm", TwoStages()).status(),
              Says("the balance unifrm is none of uniform, parameters, "
                   "profile and type:REGEX, and as layers: the "
                   "model has no layer \"unifrm\""));
  EXPECT_FALSE(CutsOf("type:Conv", TwoStages()).ok());
  ModelOutline unmeasured = Model();
  unmeasured.profile.reset();
  EXPECT_THAT(CutsOf("profile", TwoStages(), unmeasured).status(),
              Says("must have been measured"));
  EXPECT_TRUE(CutsOf("uniform", TwoStages(), unmeasured).ok());
}

TEST(Partition, ByProfileCountsTheSending) {
  ModelOutline model = Model();
  for (LayerProfile& each : model.profile->layers) {
    each.forward = each.backward_input = 1e-3;
    each.backward_weight = 0;
  }
  EXPECT_THAT(*CutsOf("profile", TwoStages(), model), ElementsAre(2));
  PipelineDevices devices;
  // 4 ms behind relu1, 2 ms behind fc2.
  devices.sending.seconds_per_byte = 4e-3 / 4096;
  EXPECT_THAT(*CutsOf("profile", TwoStages(), model, devices), ElementsAre(3));
}

TEST(Partition, CountsMicrobatchesOfEachStage) {
  EXPECT_THAT(MicrobatchesAlive(*GPipe({3, 1, 5})), ElementsAre(5, 5, 5));
  EXPECT_THAT(MicrobatchesAlive(*OneFOneB({3, 1, 5})), ElementsAre(3, 2, 1));
  EXPECT_THAT(MicrobatchesAlive(*OneFOneB({3, 1, 2})), ElementsAre(2, 2, 1));
}

// Only inputs are kept, and one microbatch's activations at a time.
TEST(Partition, CountsWhatIsComputedTwice) {
  constexpr auto kAlways = ActivationCheckpointing::kAlways;
  constexpr auto kExceptLast = ActivationCheckpointing::kExceptLast;
  const ModelProfile profile = *Model().profile;
  const auto always = StageMemories(profile, {2}, TwoStages(), kAlways);
  EXPECT_EQ(always[0].activations, 2 * 1024 + 4096);
  EXPECT_EQ(always[1].activations, 4096 + 512);
  // Microbatch 3's are kept while 2's are computed again.
  const auto but_last = StageMemories(profile, {2}, TwoStages(), kExceptLast);
  EXPECT_EQ(but_last[0].activations, 2 * 1024 + 2 * 4096);
  const Schedule gpipe = *GPipe({2, 1, 4});
  EXPECT_EQ(StageMemories(profile, {2}, gpipe)[0].activations, 4 * 5120);
  EXPECT_EQ(StageMemories(profile, {2}, gpipe, kAlways)[0].activations,
            4 * 1024 + 4096);
  const ScheduleCosts costs =
      MakeScheduleCosts(profile, {2}, TwoStages(), {}, kAlways);
  EXPECT_DOUBLE_EQ(costs.stages[0].backward_input, 1.5e-3 + 1.5e-3);
  EXPECT_DOUBLE_EQ(MakeScheduleCosts(profile, {2}, TwoStages(), {}, kExceptLast)
                       .stages[0]
                       .backward_input,
                   1.5e-3 + 1.5e-3 * 3 / 4);
  // What did not fit does then.
  PipelineDevices devices;
  devices.device_bytes = 8500;
  const Schedule schedule = TwoStages();
  EXPECT_FALSE(CutsOf("profile", schedule, Model(), devices).ok());
  devices.checkpointing = kAlways;
  EXPECT_THAT(*CutsOf("profile", schedule, Model(), devices), ElementsAre(2));
}

// 16 layers, of which the last is as slow as eight others, on the V's devices.
TEST(Partition, ByProfileMakesDevicesAlike) {
  ModelOutline model;
  ModelProfile profile;
  for (int i = 0; i < 16; ++i) {
    model.names.push_back(std::string(1, static_cast<char>('a' + i)));
    model.types.push_back("Linear");
    model.parameters.push_back(1);
    profile.layers.push_back(
        Costs(model.names.back(), i == 15 ? 8 : 1, true, 100, 10, 0));
  }
  model.profile = profile;
  const Schedule schedule = *ZeroBubbleV({2, 2, 8});
  const Cuts found = *CutsOf("profile", schedule, model);
  const auto step = [&](const Cuts& cuts) {
    return PredictSchedule(schedule,
                           MakeScheduleCosts(profile, cuts, schedule, {}))
        ->step;
  };
  const Cuts by_stage = *CutsByTime(LayerCosts(profile), 4);
  EXPECT_THAT(by_stage, ElementsAre(5, 10, 15));
  EXPECT_LT(step(found), step(by_stage));
  // 23 units of 3 ms: 12 and 11.
  const auto parts = PartTimes(LayerCosts(profile), found);
  EXPECT_NEAR(std::max(parts[0] + parts[3], parts[1] + parts[2]), 36e-3, 1e-9);
  // Stages of one device share its memory as each needs it.
  const auto bytes = DeviceMemories(profile, found, schedule);
  PipelineDevices devices;
  devices.device_bytes = *std::max_element(bytes.begin(), bytes.end());
  EXPECT_EQ(*CutsOf("profile", schedule, model, devices), found);
  const auto table = PartitionTable(model, found, schedule, devices);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(*table, HasSubstr("device  stages  time ms"));
}

// An own schedule that never ends is an error here, too.
TEST(Partition, ByProfileRefusesAScheduleThatDoesNotEnd) {
  Schedule schedule = TwoStages();
  std::swap(schedule.actions[0].front(), schedule.actions[0].back());
  EXPECT_THAT(CutsOf("profile", schedule).status(), Says("it does not end"));
}

TEST(Partition, CountsAStagesMemory) {
  const auto stages = StageMemories(*Model().profile, {2}, TwoStages());
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].state, 1200);
  EXPECT_EQ(stages[0].activations, 2 * (1024 + 4096));
  EXPECT_EQ(stages[1].state, 3600);
  EXPECT_EQ(stages[1].activations, 4096 + 512);
}

// One layer at a time has its input, its output and what it makes: 5120, 12288,
// 6144 and 3584 bytes of as many samples as in training.
TEST(Partition, CountsAnEvaluation) {
  ModelProfile profile = *Model().profile;
  EXPECT_EQ(StageMemories(profile, {2}, TwoStages())[0].evaluation, 0);
  profile.evaluation_scale = 3;
  const auto large = StageMemories(profile, {2}, TwoStages());
  EXPECT_EQ(large[0].evaluation, 3 * 12288);
  EXPECT_EQ(large[1].evaluation, 3 * 6144);
  EXPECT_THAT(DeviceMemories(profile, {2}, TwoStages()),
              ElementsAre(1200 + 3 * 12288, 3600 + 3 * 6144));
  profile.evaluation_scale = 0.5;  // less than training keeps
  EXPECT_EQ(StageMemories(profile, {2}, TwoStages())[0].evaluation, 6144);
  EXPECT_THAT(DeviceMemories(profile, {2}, TwoStages()),
              ElementsAre(1200 + 2 * 5120, 3600 + 4608));
  // Two stages a device: its largest layer is in one of them.
  profile.evaluation_scale = 10;
  EXPECT_THAT(DeviceMemories(profile, {1, 2, 3}, *ZeroBubbleV({2, 2, 4})),
              ElementsAre(2400 + 51200, 2400 + 122880));
}

TEST(Partition, CountsTiedWeightsOnceInAStage) {
  ModelOutline model = Model();
  model.profile->layers[0].shared_state = {{0, 1000}};
  model.profile->layers[3].shared_state = {{0, 1000}};
  EXPECT_EQ(StageMemories(*model.profile, {}, *GPipe({1, 1, 1}))[0].state,
            4800 - 1000);
  const auto apart = StageMemories(*model.profile, {2}, TwoStages());
  EXPECT_EQ(apart[0].state, 1200);
  EXPECT_EQ(apart[1].state, 3600);
}

// One unit of a part computes, and the next is gathered ahead.
TEST(Partition, CountsWhatIsGatheredAtATime) {
  ModelOutline model = Model();
  const std::vector<int64_t> numbers = {10, 0, 30, 5};
  for (size_t i = 0; i < numbers.size(); ++i) {
    model.profile->layers[i].gathered_numbers = numbers[i];
    model.profile->layers[i].gathered_bytes = 4 * numbers[i];
  }
  const Schedule whole = *GPipe({1, 1, 1});
  const Schedule two = TwoStages();
  const auto gathered = [&](int64_t together, const Cuts& cuts, size_t stage) {
    model.profile->gathered_together = together;
    const Schedule& schedule = cuts.empty() ? whole : two;
    return StageMemories(*model.profile, cuts, schedule)[stage].state -
           StageMemories(*Model().profile, cuts, schedule)[stage].state;
  };
  EXPECT_EQ(gathered(1, {}, 0), 4 * (10 + 30));
  EXPECT_EQ(gathered(11, {}, 0), 4 * (10 + 30 + 5));
  EXPECT_EQ(gathered(1, {2}, 0), 4 * 10);
  EXPECT_EQ(gathered(1, {2}, 1), 4 * (30 + 5));
  EXPECT_EQ(gathered(100, {2}, 0), 4 * 10);
  PipelineDevices devices;
  devices.device_bytes = 11440 + 4 * 10;  // see ByProfileFitsTheMemory
  EXPECT_THAT(*CutsOf("profile", two, model, devices), ElementsAre(2));
  --devices.device_bytes;
  EXPECT_EQ(CutsOf("profile", two, model, devices).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Partition, ByProfileFitsTheMemory) {
  PipelineDevices devices;
  devices.device_bytes = 11440;  // the fastest cut's need
  EXPECT_THAT(*CutsOf("profile", TwoStages(), Model(), devices),
              ElementsAre(2));
  devices.device_bytes = 11439;
  // Behind the first layer: 3248 and 12304 bytes. Behind the third: 13840.
  EXPECT_EQ(CutsOf("profile", TwoStages(), Model(), devices).status().code(),
            absl::StatusCode::kResourceExhausted);
  // With 1 microbatch stage 0 keeps less: 6320 and 8208 bytes.
  devices.device_bytes = 8208;
  EXPECT_THAT(*CutsOf("profile", TwoStages(1), Model(), devices),
              ElementsAre(2));
  // A limit under which another cut than the fastest one does.
  ModelOutline model = Model();
  model.profile->layers[1].output_bytes = 9000;
  devices.device_bytes = 12000;
  EXPECT_THAT(*CutsOf("profile", TwoStages(1), model), ElementsAre(2));
  EXPECT_THAT(*CutsOf("profile", TwoStages(1), model, devices),
              testing::AnyOf(ElementsAre(1), ElementsAre(3)));
}

TEST(Partition, ByProfileFitsTheMemoryOfAnEvaluation) {
  ModelOutline model = Model();
  model.profile->evaluation_scale = 3;
  PipelineDevices devices;
  devices.device_bytes = 1200 + 3 * 12288;  // all other cuts have more
  EXPECT_THAT(*CutsOf("profile", TwoStages(), model, devices), ElementsAre(2));
  --devices.device_bytes;
  EXPECT_EQ(CutsOf("profile", TwoStages(), model, devices).status().code(),
            absl::StatusCode::kResourceExhausted);
  const Schedule two_each = *ZeroBubbleV({2, 2, 4});
  model.profile->evaluation_scale = 10;
  devices.device_bytes = 2400 + 10 * 12288;
  EXPECT_THAT(*CutsOf("profile", two_each, model, devices),
              ElementsAre(1, 2, 3));
  --devices.device_bytes;
  EXPECT_EQ(CutsOf("profile", two_each, model, devices).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Partition, ByProfileKnowsTiedWeights) {
  ModelOutline model = Model();
  // fc1 and head have one tensor. In one stage it counts once.
  model.profile->layers[0].shared_state = {{0, 1200}};
  model.profile->layers[3].shared_state = {{0, 1200}};
  PipelineDevices devices;
  devices.device_bytes = 8208;
  EXPECT_THAT(*CutsOf("profile", TwoStages(1), model, devices), ElementsAre(2));
  devices.device_bytes = 8207;  // stage 1 has it as well
  EXPECT_EQ(CutsOf("profile", TwoStages(1), model, devices).status().code(),
            absl::StatusCode::kResourceExhausted);
  // 3600 + 1024 + 4608 bytes.
  devices.device_bytes = 9232;
  EXPECT_THAT(*CutsOf("profile", *GPipe({1, 1, 1}), model, devices),
              ElementsAre());
}

TEST(PartitionTable, OfAProfile) {
  PipelineDevices devices;
  const auto table = PartitionTable(Model(), {2}, TwoStages(), devices);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ("\n" + *table, R"(
layer  type    parameters  forward ms  backward ms      state  activations  stage
fc1    Linear         100       1.000        2.000  1.172 KiB          0 B      0
relu1  ReLU             0       0.500        0.500        0 B        4 KiB      0
fc2    Linear         200       2.000        4.000  2.344 KiB          0 B      1
head   Head           100       1.000        2.000  1.172 KiB        512 B      1

stage  device  layers        parameters  forward ms  backward ms      state  activations     memory
    0       0  fc1 to relu1         100       1.500        2.500  1.172 KiB    2 x 5 KiB  11.17 KiB
    1       1  fc2 to head          300       3.000        6.000  3.516 KiB  1 x 4.5 KiB  8.016 KiB

slowest stage    1: 9.000 ms a microbatch
predicted step   40.000 ms (1f1b, 4 microbatches; bubble 10.0 %; a message 0.000 ms)
)");
}

TEST(PartitionTable, WithAnEvaluation) {
  ModelOutline model = Model();
  model.profile->evaluation_scale = 3;
  const auto table = PartitionTable(model, {2}, TwoStages());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(*table, HasSubstr(R"(
stage  device  layers        parameters  forward ms  backward ms      state  activations  evaluation     memory
    0       0  fc1 to relu1         100       1.500        2.500  1.172 KiB    2 x 5 KiB      36 KiB  37.17 KiB
    1       1  fc2 to head          300       3.000        6.000  3.516 KiB  1 x 4.5 KiB      18 KiB  21.52 KiB
)"));
}

TEST(PartitionTable, WithoutAProfile) {
  ModelOutline model = Model();
  model.profile.reset();
  const auto table = PartitionTable(model, {1, 3}, *GPipe({3, 1, 2}));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ("\n" + *table, R"(
layer  type    parameters  stage
fc1    Linear         100      0
relu1  ReLU             0      1
fc2    Linear         200      1
head   Head           100      2

stage  device  layers        parameters
    0       0  fc1                  100
    1       1  relu1 to fc2         200
    2       2  head                 100
)");
}

}  // namespace
}  // namespace tandem::partition_test
