#include "parallel/partition/table.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/byte_size.h"
#include "core/base/status_macros.h"
#include "core/base/text_table.h"
#include "parallel/partition/partition.h"
#include "parallel/schedule/simulation.h"

namespace tandem {
namespace {

using Row = std::vector<std::string>;

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.3f", 1e3 * seconds);
}

void Append(Row& row, const Row& more) {
  row.insert(row.end(), more.begin(), more.end());
}

std::string Layers(const ModelOutline& model, const Cuts& cuts) {
  Row head = {"layer", "type", "parameters"};
  if (model.profile.has_value()) {
    Append(head, {"forward ms", "backward ms", "state", "activations"});
  }
  head.push_back("stage");
  std::vector<Row> rows = {head};
  for (size_t i = 0; i < model.names.size(); ++i) {
    Row row = {model.names[i], model.types[i],
               absl::StrCat(model.parameters[i])};
    if (model.profile.has_value()) {
      const LayerProfile& profile = model.profile->layers[i];
      Append(row,
             {Milliseconds(profile.forward),
              Milliseconds(profile.backward_input + profile.backward_weight),
              FormatBytes(profile.state_bytes),
              FormatBytes(profile.activation_bytes)});
    }
    const auto stage =
        std::upper_bound(cuts.begin(), cuts.end(), static_cast<int64_t>(i)) -
        cuts.begin();
    row.push_back(absl::StrCat(stage));
    rows.push_back(row);
  }
  return TextTable(rows);
}

std::string LayerNames(const ModelOutline& model, const LayerRange& part) {
  const std::string& first = model.names[part.begin];
  if (part.end == part.begin + 1) return first;
  return absl::StrCat(first, " to ", model.names[part.end - 1]);
}

bool IsEvaluated(const ModelProfile& profile) {
  return profile.evaluation_scale > 0;
}

// The cells of each stage that a profile gives.
std::vector<Row> Measured(const ModelProfile& profile, const Cuts& cuts,
                          const Schedule& schedule,
                          const PipelineDevices& devices) {
  const std::vector<StageCost> costs =
      MakeScheduleCosts(profile, cuts, schedule, devices.sending,
                        devices.checkpointing)
          .stages;
  const std::vector<StageMemory> memory =
      StageMemories(profile, cuts, schedule, devices.checkpointing);
  const bool keeps_all =
      devices.checkpointing == ActivationCheckpointing::kNever;
  const std::vector<int> alive = MicrobatchesAlive(schedule);
  std::vector<Row> cells;
  for (size_t s = 0; s < costs.size(); ++s) {
    Row row = {Milliseconds(costs[s].forward),
               Milliseconds(costs[s].backward_input + costs[s].backward_weight),
               FormatBytes(memory[s].state),
               keeps_all ? absl::StrCat(alive[s], " x ",
                                        FormatBytes(memory[s].activations /
                                                    std::max(alive[s], 1)))
                         : FormatBytes(memory[s].activations)};
    if (IsEvaluated(profile)) row.push_back(FormatBytes(memory[s].evaluation));
    row.push_back(
        FormatBytes(memory[s].state +
                    std::max(memory[s].activations, memory[s].evaluation)));
    cells.push_back(row);
  }
  return cells;
}

std::string Stages(const ModelOutline& model, const Cuts& cuts,
                   const Schedule& schedule, const PipelineDevices& devices) {
  Row head = {"stage", "device", "layers", "parameters"};
  std::vector<Row> measured;
  if (model.profile.has_value()) {
    Append(head, {"forward ms", "backward ms", "state", "activations"});
    if (IsEvaluated(*model.profile)) head.push_back("evaluation");
    head.push_back("memory");
    measured = Measured(*model.profile, cuts, schedule, devices);
  }
  std::vector<Row> rows = {head};
  const std::vector<int> device_of = DevicesOfStages(schedule);
  int stage = 0;
  for (const LayerRange& part :
       LayerRanges(cuts, static_cast<int64_t>(model.names.size()))) {
    int64_t parameters = 0;
    for (int64_t i = part.begin; i < part.end; ++i) {
      parameters += model.parameters[i];
    }
    Row row = {absl::StrCat(stage), absl::StrCat(device_of[stage]),
               LayerNames(model, part), absl::StrCat(parameters)};
    if (!measured.empty()) Append(row, measured[stage]);
    rows.push_back(row);
    ++stage;
  }
  return TextTable(rows);
}

// Each device's time for one microbatch in all its stages, and the most that it
// holds.
std::string Devices(const ModelProfile& profile, const Cuts& cuts,
                    const Schedule& schedule, const PipelineDevices& devices,
                    const std::vector<double>& stage_times) {
  const std::vector<int64_t> bytes =
      DeviceMemories(profile, cuts, schedule, devices.checkpointing);
  std::vector<Row> rows = {{"device", "stages", "time ms", "memory"}};
  for (size_t i = 0; i < bytes.size(); ++i) {
    double time = 0;
    for (int stage : schedule.stages_of[i]) time += stage_times[stage];
    rows.push_back({absl::StrCat(i), absl::StrJoin(schedule.stages_of[i], ", "),
                    Milliseconds(time), FormatBytes(bytes[i])});
  }
  return absl::StrCat(TextTable(rows), "\n");
}

absl::StatusOr<std::string> Prediction(const ModelProfile& profile,
                                       const Cuts& cuts,
                                       const Schedule& schedule,
                                       const PipelineDevices& devices) {
  const ScheduleCosts costs = MakeScheduleCosts(
      profile, cuts, schedule, devices.sending, devices.checkpointing);
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction predicted,
                          PredictSchedule(schedule, costs));
  size_t slowest = 0;
  std::vector<double> times;
  for (const StageCost& each : costs.stages) {
    times.push_back(each.forward + each.backward_input + each.backward_weight);
    if (times.back() > times[slowest]) slowest = times.size() - 1;
  }
  return absl::StrCat(
      schedule.stages == schedule.devices()
          ? ""
          : Devices(profile, cuts, schedule, devices, times),
      absl::StrFormat(
          "slowest stage    %d: %s ms a microbatch\n"
          "predicted step   %s ms (%s, %d microbatches; bubble %.1f %%; a "
          "message %s ms)\n",
          slowest, Milliseconds(times[slowest]), Milliseconds(predicted.step),
          schedule.name, schedule.microbatches,
          predicted.step > 0 ? 100 * predicted.bubble / predicted.step : 0,
          Milliseconds(costs.transfer)));
}

}  // namespace

absl::StatusOr<std::string> PartitionTable(const ModelOutline& model,
                                           const Cuts& cuts,
                                           const Schedule& schedule,
                                           const PipelineDevices& devices) {
  std::string text = absl::StrCat(Layers(model, cuts), "\n",
                                  Stages(model, cuts, schedule, devices));
  if (!model.profile.has_value()) return text;
  TANDEM_ASSIGN_OR_RETURN(const std::string predicted,
                          Prediction(*model.profile, cuts, schedule, devices));
  return absl::StrCat(text, "\n", predicted);
}

}  // namespace tandem
