#include "tests/parallel/matrix/matrix_cell.h"

#include <glog/logging.h>

#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "parallel/schedule/schedules.h"

namespace tandem {
namespace {

// Schedules that have two parts of the model on each device, where that can be.
bool Loops(const std::string& schedule) {
  return schedule == "interleaved_1f1b" || schedule == "looped_bfs" ||
         schedule == "zb_v";
}

int ChunksOf(const MatrixCell& cell) {
  if (!Loops(cell.schedule)) return 1;
  const bool always = cell.reproducible || cell.schedule == "zb_v";
  return always || cell.stages % 2 == 0 ? 2 : 1;
}

// Groups of two would be sums of the tree anyway.
int GroupsOf(const MatrixCell& cell) {
  const absl::StatusOr<Schedule> schedule = CellSchedule(cell);
  const bool takes_groups =
      schedule.ok() && OrderOfGradients(*schedule) == GradientsCome::kAscending;
  if (!takes_groups || cell.microbatches == 24) return cell.microbatches;
  return cell.replicas == 3 ? 3 : 4;
}

// A cell's members, by the names of settings.
const std::map<std::string, std::string MatrixCell::*>& Names() {
  static const auto* const names =
      new std::map<std::string, std::string MatrixCell::*>{
          {"models", &MatrixCell::model},
          {"schedules", &MatrixCell::schedule},
          {"places", &MatrixCell::place},
          {"checkpointing", &MatrixCell::checkpointing},
          {"devices", &MatrixCell::device},
          {"ends", &MatrixCell::ends},
          {"dtypes", &MatrixCell::dtype}};
  return *names;
}

const std::map<std::string, int MatrixCell::*>& Numbers() {
  static const auto* const numbers =
      new std::map<std::string, int MatrixCell::*>{
          {"replicas", &MatrixCell::replicas},
          {"stages", &MatrixCell::stages},
          {"microbatches", &MatrixCell::microbatches},
          {"parts", &MatrixCell::parts}};
  return *numbers;
}

void Set(const std::string& setting, const std::string& value,
         MatrixCell& cell) {
  const auto name = Names().find(setting);
  if (name != Names().end()) {
    cell.*name->second = value;
  } else {
    CHECK(absl::SimpleAtoi(value, &(cell.*Numbers().at(setting)))) << setting;
  }
}

}  // namespace

int MatrixCell::ranks_of_replica() const {
  if (place == "devices" || is_served()) return 1;
  return place == "both" ? 2 : devices_of_replica();
}

std::string MatrixCell::strategy() const {
  if (is_served()) return "parameter_server";
  if (devices_of_replica() == 1) return replicas == 1 ? "single" : "ddp";
  return replicas == 1 ? "pipeline" : "hybrid";
}

std::string ToString(const MatrixCell& cell) {
  return absl::StrCat(
      cell.model, " ", cell.schedule, ", ", cell.replicas, " x ", cell.stages,
      " on ", cell.place, ", ", cell.microbatches, " microbatches",
      cell.reproducible ? absl::StrCat(" in ", cell.gradient_groups, " groups")
                        : "",
      ", checkpointing ", cell.checkpointing, ", ", cell.device, ", ",
      cell.dtype, ", ends ", cell.ends,
      cell.parts == 1 ? "" : absl::StrCat(", ", cell.parts, " parts"),
      cell.reproducible ? ", reproducible" : "");
}

const MatrixSettings& CellSettings(bool reproducible) {
  static const auto* within_rounding = new MatrixSettings{
      {"models",
       {"mlp_small", "mlp_dropout", "gpt_tiny_tied", "unet_tiny", "resnet18",
        "resnet18_deferred"}},
      {"schedules", ScheduleNames()},
      {"stages", {"1", "2", "3", "4"}},
      {"microbatches", {"1", "2", "3", "4", "5", "6", "7", "8"}},
      {"places", {"devices", "ranks", "gloo", "both"}},
      {"checkpointing", {"never", "except_last", "always"}},
      {"devices", {"cpu", "sim"}}};
  static const auto* as_bits = new MatrixSettings{
      {"models", {"mlp_dropout", "resnet18", "gpt_tiny_tied"}},
      {"schedules", ScheduleNames()},
      {"replicas", {"1", "2", "3", "4"}},
      {"stages", {"1", "2", "3", "4"}},
      {"places", {"devices", "ranks", "both", "served"}},
      {"microbatches", {"12", "24"}},
      {"checkpointing", {"never", "except_last", "always", "every_2"}},
      {"devices", {"cpu", "sim"}},
      {"parts", {"1", "2", "3"}},
      {"ends", {"whole", "short"}},
      {"dtypes", {"fp32", "bf16"}}};
  return reproducible ? *as_bits : *within_rounding;
}

MatrixCell MakeCell(bool reproducible, const Combination& combination) {
  MatrixCell cell;
  cell.reproducible = reproducible;
  const MatrixSettings& settings = CellSettings(reproducible);
  for (size_t i = 0; i < settings.size(); ++i) {
    Set(settings[i].name,
        settings[i].values[static_cast<size_t>(combination[i])], cell);
  }
  cell.chunks = ChunksOf(cell);
  if (reproducible) cell.stages *= cell.chunks;
  cell.gradient_groups = reproducible ? GroupsOf(cell) : cell.microbatches;
  return cell;
}

std::string SettingOf(const MatrixCell& cell, const std::string& setting) {
  if (setting == "reproducible") return cell.reproducible ? "yes" : "no";
  const auto name = Names().find(setting);
  if (name != Names().end()) return cell.*name->second;
  return absl::StrCat(cell.*Numbers().at(setting));
}

std::vector<std::string> KnownValues(const std::string& setting) {
  if (setting == "reproducible") return {"no", "yes"};
  std::vector<std::string> known;
  for (const bool reproducible : {false, true}) {
    for (const MatrixSetting& each : CellSettings(reproducible)) {
      if (each.name != setting) continue;
      for (const std::string& value : each.values) {
        if (!absl::c_linear_search(known, value)) known.push_back(value);
      }
    }
  }
  return known;
}

std::string WhyNot(const MatrixCell& cell) {
  if (cell.stages % cell.chunks != 0) {
    return "zb_v has two stages on each device";
  }
  const int devices = cell.devices_of_replica();
  if (cell.place == "both" && devices != 4) {
    return "2 ranks of 2 devices are 4 devices";
  }
  const bool over_ranks = cell.place == "ranks" || cell.place == "gloo";
  if (over_ranks && devices == 1) return "one device is on one rank";
  // Workers draw masks and keep statistics for their samples, each by itself.
  if (cell.is_served() && cell.replicas > 1) {
    return "a server takes the mean of workers that know their samples alone";
  }
  if (cell.parts > 1 && cell.stages > 1) {
    return "each device of DataParallel has the whole model";
  }
  if (cell.parts > 1 && cell.model == "resnet18") {
    return "a part of a microbatch records no statistics";
  }
  const int microbatches = cell.microbatches / cell.replicas;
  if (cell.schedule == "interleaved_1f1b" && microbatches % devices != 0) {
    return "interleaved_1f1b takes a multiple of the devices";
  }
  return "";
}

std::vector<Combination> SensibleCells(bool reproducible) {
  return AllCombinations(SizesOf(CellSettings(reproducible)),
                         [=](const Combination& each) {
                           return WhyNot(MakeCell(reproducible, each)).empty();
                         });
}

MatrixCell ReferenceCell(const MatrixCell& cell) {
  MatrixCell one;
  one.model = cell.model;
  one.schedule = "1f1b";
  one.place = "devices";
  one.microbatches = cell.microbatches;
  one.checkpointing = "never";
  one.device = "cpu";
  one.parts = cell.parts;
  one.ends = cell.ends;
  one.dtype = cell.dtype;
  one.reproducible = cell.reproducible;
  one.gradient_groups = cell.gradient_groups;
  return one;
}

absl::StatusOr<Schedule> CellSchedule(const MatrixCell& cell) {
  return MakeSchedule(cell.schedule, {cell.devices_of_replica(), cell.chunks,
                                      cell.microbatches / cell.replicas});
}

}  // namespace tandem
