#include "tests/e2e/layouts/layout_cell.h"

#include "absl/strings/str_cat.h"
#include "parallel/schedule/schedules.h"

namespace tandem {
namespace {

bool Loops(const std::string& schedule) {
  return schedule == "interleaved_1f1b" || schedule == "looped_bfs" ||
         schedule == "zb_v";
}

// Groups of two would be sums of the tree anyway.
int GroupsOf(const LayoutCell& cell) {
  const absl::StatusOr<Schedule> schedule = ScheduleOf(cell);
  const bool takes_groups =
      schedule.ok() && OrderOfGradients(*schedule) == GradientsCome::kAscending;
  if (!takes_groups || cell.microbatches == 24) return cell.microbatches;
  return cell.replicas == 3 ? 3 : 4;
}

}  // namespace

int LayoutCell::ranks_of_replica() const {
  if (place == "devices" || is_served()) return 1;
  return place == "both" ? 2 : stages;
}

std::string LayoutCell::strategy() const {
  if (is_served()) return "parameter_server";
  if (stages == 1) return replicas == 1 ? "single" : "ddp";
  return replicas == 1 ? "pipeline" : "hybrid";
}

std::string ToString(const LayoutCell& cell) {
  return absl::StrCat(
      cell.model, " ", cell.schedule, ", ", cell.replicas, " x ", cell.stages,
      " on ", cell.place, ", ", cell.microbatches, " microbatches in ",
      cell.gradient_groups, " groups, checkpointing ", cell.checkpointing, ", ",
      cell.device, ", ", cell.dtype, ", ends ", cell.ends,
      cell.parts == 1 ? "" : absl::StrCat(", ", cell.parts, " parts"));
}

const MatrixValues& LayoutSettings() {
  static const auto* settings =
      new MatrixValues{{"mlp_dropout", "resnet18", "gpt_tiny_tied"},
                       ScheduleNames(),
                       {"1", "2", "3", "4"},
                       {"1", "2", "3", "4"},
                       {"devices", "ranks", "both", "served"},
                       {"12", "24"},
                       {"never", "except_last", "always", "every_2"},
                       {"cpu", "sim"},
                       {"1", "2", "3"},
                       {"whole", "short"},
                       {"fp32", "bf16"}};
  return *settings;
}

LayoutCell LayoutOf(const Combination& combination) {
  const auto value = [&](size_t i) {
    return LayoutSettings()[i][static_cast<size_t>(combination[i])];
  };
  LayoutCell cell;
  cell.model = value(0);
  cell.schedule = value(1);
  cell.replicas = combination[2] + 1;
  cell.stages = combination[3] + 1;
  cell.place = value(4);
  cell.microbatches = combination[5] == 0 ? 12 : 24;
  cell.checkpointing = value(6);
  cell.device = value(7);
  cell.parts = combination[8] + 1;
  cell.ends = value(9);
  cell.dtype = value(10);
  cell.gradient_groups = GroupsOf(cell);
  return cell;
}

std::string WhyNot(const LayoutCell& cell) {
  if (cell.place == "both" && cell.stages != 4) {
    return "2 ranks of 2 devices are 4 stages";
  }
  if (cell.place == "ranks" && cell.stages == 1) {
    return "one stage is on one rank";
  }
  // Which workers draw masks and keep statistics for, each by itself.
  if (cell.is_served() && cell.replicas > 1) {
    return "a server takes the mean of workers that know their samples alone";
  }
  if (cell.parts > 1 && (cell.stages > 1 || Loops(cell.schedule))) {
    return "each device of DataParallel has the whole model";
  }
  if (cell.parts > 1 && cell.model == "resnet18") {
    return "a part of a microbatch records no statistics";
  }
  const int microbatches = cell.microbatches / cell.replicas;
  if (cell.schedule == "interleaved_1f1b" && microbatches % cell.stages != 0) {
    return "interleaved_1f1b takes a multiple of the devices";
  }
  return "";
}

std::vector<Combination> SensibleLayouts() {
  return AllCombinations(
      SizesOf(LayoutSettings()),
      [](const Combination& each) { return WhyNot(LayoutOf(each)).empty(); });
}

LayoutCell OneDevice(const LayoutCell& cell) {
  LayoutCell one;
  one.model = cell.model;
  one.schedule = "1f1b";
  one.place = "devices";
  one.microbatches = cell.microbatches;
  one.checkpointing = "never";
  one.device = "cpu";
  one.parts = cell.parts;
  one.ends = cell.ends;
  one.dtype = cell.dtype;
  one.gradient_groups = cell.gradient_groups;
  return one;
}

absl::StatusOr<Schedule> ScheduleOf(const LayoutCell& cell) {
  return MakeSchedule(cell.schedule, {cell.stages, Loops(cell.schedule) ? 2 : 1,
                                      cell.microbatches / cell.replicas});
}

}  // namespace tandem
