// Cuts and schedules that other projects' tests and programs give as literals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "parallel/balance/cut.h"
#include "parallel/partition/balance.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/simulation.h"

namespace tandem::outside_figures_test {
namespace {

using testing::ElementsAre;

std::vector<LayerCost> Times(const std::vector<double>& times) {
  std::vector<LayerCost> layers;
  for (double time : times) layers.push_back({time / 2, time / 2});
  return layers;
}

// tests/test_balance.py: blockpartition, balance_by_time (sleeps of i / 100 s),
// balance_by_size (latents of size i; Linear(i + 1, i + 2)).
TEST(TorchgpipeTest, Balance) {
  EXPECT_THAT(*CutsByTime(Times({1, 2, 3, 4, 5, 6}), 2), ElementsAre(4));
  EXPECT_THAT(*CutsByTime(Times({6, 5, 4, 3, 2, 1}), 2), ElementsAre(2));
  EXPECT_THAT(*CutsByTime(Times({0, 0}), 2), ElementsAre(1));
  EXPECT_THAT(*CutsByParameters({1, 2, 3, 4, 5, 6}, 2), ElementsAre(4));
  EXPECT_THAT(*CutsByParameters({6, 5, 4, 3, 2, 1}, 2), ElementsAre(2));
  EXPECT_THAT(*CutsByParameters({0, 0}, 2), ElementsAre(1));
  EXPECT_THAT(*CutsByParameters({4, 9, 16, 25, 36, 49}, 2), ElementsAre(4));
  EXPECT_THAT(*CutsByParameters({49, 36, 25, 16, 9, 4}, 2), ElementsAre(2));
  // Conv2d(3, 2, 1), Flatten, Linear(128, 10): there the first part has one.
  EXPECT_THAT(*CutsByParameters({8, 0, 1290}, 2), ElementsAre(2));
  for (const int parts : {-1, 0, 3}) {
    EXPECT_FALSE(CutsByTime(Times({1, 2}), parts).ok()) << parts;
    EXPECT_FALSE(CutsByParameters({1, 2}, parts).ok()) << parts;
  }
}

// tests/unit/runtime/utils/test_partition.py. Its bounds have 0 before and the
// number of layers behind them.
TEST(DeepSpeedTest, PartitionBalanced) {
  EXPECT_THAT(*CutsByParameters({0, 1, 2, 3, 3, 3}, 4), ElementsAre(3, 4, 5));
  EXPECT_THAT(*CutsByTime(Times({0, 1.1, 1.9, 3, 3, 3}), 4),
              ElementsAre(3, 4, 5));
  EXPECT_THAT(*CutsByTime(Times({0, 1.1, 30, 3}), 3), ElementsAre(2, 3));
  EXPECT_THAT(*CutsByParameters(std::vector<int64_t>(8, 1), 4),
              ElementsAre(2, 4, 6));
  EXPECT_THAT(*UniformCuts(8, 4), ElementsAre(2, 4, 6));
}

// tests/test_pipeline.py: clock_cycles(4, 2), what computes (microbatch, stage)
// at which tick.
TEST(TorchgpipeTest, ClockCycles) {
  const Schedule schedule = *GPipe({2, 1, 4});
  ScheduleCosts costs;
  costs.stages.assign(2, {1, 1, 1});
  std::map<int, std::vector<std::pair<int, int>>> ticks;
  const auto predicted = PredictSchedule(schedule, costs);
  ASSERT_TRUE(predicted.ok()) << predicted.status();
  for (const auto& device : predicted->devices) {
    for (const TimedAction& each : device) {
      if (each.action.kind != ActionKind::kForward) continue;
      ticks[static_cast<int>(each.begin)].emplace_back(each.action.microbatch,
                                                       each.action.stage);
    }
  }
  using Cell = std::pair<int, int>;
  EXPECT_THAT(ticks,
              ElementsAre(std::pair(0, std::vector<Cell>{{0, 0}}),
                          std::pair(1, std::vector<Cell>{{1, 0}, {0, 1}}),
                          std::pair(2, std::vector<Cell>{{2, 0}, {1, 1}}),
                          std::pair(3, std::vector<Cell>{{3, 0}, {2, 1}}),
                          std::pair(4, std::vector<Cell>{{3, 1}})));
}

struct Table {
  std::string name;
  ScheduleShape shape;
  std::string text;
};

// What torch.distributed.pipelining 2.15.0 makes: pipeline_order of
// ScheduleInterleaved1F1B and ScheduleZBVZeroBubble, without what waits (None).
// (Its ScheduleLoopedBFS and ScheduleGPipe order backwards the other way.)
const std::vector<Table>& Tables() {
  static const auto* const tables = new std::vector<Table>{
      {"interleaved_1f1b",
       {2, 2, 4},
       "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
       "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"},
      {"interleaved_1f1b",
       {4, 2, 8},
       "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 "
       "4B3 4F6 0B0 4F7 0B1 0B2 0B3 4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7\n"
       "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 1F4 5B0 1F5 5B1 1F6 5B2 1F7 5B3 5F4 "
       "1B0 5F5 1B1 5F6 1B2 5F7 1B3 5B4 5B5 5B6 5B7 1B4 1B5 1B6 1B7\n"
       "2F0 2F1 2F2 2F3 6F0 6F1 6F2 6B0 6F3 6B1 2F4 6B2 2F5 6B3 2F6 2B0 2F7 "
       "2B1 6F4 2B2 6F5 2B3 6F6 6B4 6F7 6B5 6B6 6B7 2B4 2B5 2B6 2B7\n"
       "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 "
       "3B2 3F7 3B3 7F4 7B4 7F5 7B5 7F6 7B6 7F7 7B7 3B4 3B5 3B6 3B7"},
      {"interleaved_1f1b",
       {2, 3, 4},
       "0F0 0F1 2F0 2F1 4F0 4F1 0F2 4B0 0F3 4B1 2F2 2B0 2F3 2B1 4F2 0B0 4F3 "
       "0B1 4B2 4B3 2B2 2B3 0B2 0B3\n"
       "1F0 1F1 3F0 3F1 5F0 5B0 5F1 5B1 1F2 3B0 1F3 3B1 3F2 1B0 3F3 1B1 5F2 "
       "5B2 5F3 5B3 3B2 3B3 1B2 1B3"},
      {"zb_v",
       {2, 2, 4},
       "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 "
       "3F3 3I3 3W3 0I2 0W2 0I3 0W3\n"
       "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 "
       "2W2 1I2 2I3 1I3 1W2 2W3 1W3"},
      {"zb_v",
       {3, 2, 6},
       "0F0 0F1 0F2 0F3 0F4 5F0 5I0 5W0 5F1 5I1 5W1 5F2 5I2 5W2 0F5 0I0 0W0 "
       "5F3 5I3 5W3 0I1 0W1 5F4 5I4 5W4 0I2 0W2 5F5 5I5 5W5 0I3 0W3 0I4 0W4 "
       "0I5 0W5\n"
       "1F0 1F1 1F2 4F0 1F3 4F1 4I0 4W0 4F2 4I1 4W1 1F4 1I0 1W0 4F3 4I2 4W2 "
       "1F5 1I1 1W1 4F4 4I3 4W3 1I2 1W2 4F5 4I4 4W4 1I3 4I5 1I4 1W3 1I5 1W4 "
       "4W5 1W5\n"
       "2F0 3F0 2F1 3F1 2F2 3F2 3I0 3W0 2F3 2I0 2W0 3F3 3I1 3W1 2F4 2I1 2W1 "
       "3F4 3I2 3W2 2F5 2I2 2W2 3F5 3I3 3W3 2I3 3I4 2I4 3I5 2I5 2W3 3W4 3W5 "
       "2W4 2W5"},
      {"zb_v",
       {4, 2, 8},
       "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 "
       "7I3 7W3 0F7 0I0 0W0 7F4 7I4 7W4 0I1 0W1 7F5 7I5 7W5 0I2 0W2 7F6 7I6 "
       "7W6 0I3 0W3 7F7 7I7 7W7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7\n"
       "1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6I0 6W0 6F2 6I1 6W1 6F3 6I2 6W2 1F6 "
       "1I0 1W0 6F4 6I3 6W3 1F7 1I1 1W1 6F5 6I4 6W4 1I2 1W2 6F6 6I5 6W5 1I3 "
       "1W3 6F7 6I6 6W6 1I4 6I7 1I5 1W4 1I6 1W5 1I7 1W6 6W7 1W7\n"
       "2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5W0 5F3 5I1 5W1 2F5 2I0 2W0 5F4 "
       "5I2 5W2 2F6 2I1 2W1 5F5 5I3 5W3 2F7 2I2 2W2 5F6 5I4 5W4 2I3 2W3 5F7 "
       "5I5 5W5 2I4 5I6 2I5 5I7 2I6 2W4 2I7 2W5 5W6 5W7 2W6 2W7\n"
       "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 4W0 3F4 3I0 3W0 4F4 4I1 4W1 3F5 "
       "3I1 3W1 4F5 4I2 4W2 3F6 3I2 3W2 4F6 4I3 4W3 3F7 3I3 3W3 4F7 4I4 4W4 "
       "3I4 4I5 3I5 4I6 3I6 4I7 3I7 3W4 4W5 4W6 4W7 3W5 3W6 3W7"},
  };
  return *tables;
}

TEST(PyTorchPipeliningTest, SchedulesAreTheSame) {
  for (const Table& table : Tables()) {
    const auto schedule = MakeSchedule(table.name, table.shape);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(ToString(*schedule), table.text) << table.name;
  }
}

// Its _dump_csv writes commas, and nothing between two of them where a rank
// waits.
TEST(PyTorchPipeliningTest, ItsCsvIsRead) {
  for (const Table& table : Tables()) {
    const std::string csv = absl::StrReplaceAll(table.text, {{" ", ",,"}});
    const auto read = ParseSchedule("csv", csv);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ToString(*read), table.text);
  }
  EXPECT_FALSE(ParseSchedule("csv", "0F0,0SEND_F0,0B0").ok());
}

}  // namespace
}  // namespace tandem::outside_figures_test
