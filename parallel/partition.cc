#include "parallel/partition.h"

#include <algorithm>
#include <cstddef>
#include <regex>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/status_macros.h"
#include "parallel/balance.h"

namespace tandem {
namespace {

absl::Status CheckExpression(const std::string& text) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "balance by type: expected an expression behind the colon, such as "
        "type:Linear|Conv2d");
  }
  try {
    const std::regex expression(text);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "balance by type:", text,
        ": not a regular expression (ECMAScript's): ", error.what()));
  }
  return absl::OkStatus();
}

// A tied weight is charged to the first layer that has it.
std::vector<LayerCost> CostsWithSharedOnce(const ModelProfile& profile) {
  std::vector<LayerCost> costs = CostsOf(profile);
  std::set<int> seen;
  for (size_t i = 0; i < costs.size(); ++i) {
    for (const auto& [number, bytes] : profile.layers[i].shared_state) {
      if (!seen.insert(number).second) costs[i].state_bytes -= bytes;
    }
  }
  return costs;
}

absl::StatusOr<Cuts> CutsAsGiven(const std::string& text,
                                 const std::vector<std::string>& names,
                                 int64_t stages) {
  absl::StatusOr<Cuts> cuts = ParseCuts(text, names, stages);
  if (cuts.ok()) return cuts;
  return absl::Status(cuts.status().code(),
                      absl::StrCat("the balance ", text,
                                   " is none of uniform, parameters, "
                                   "profile and type:REGEX, and as layers: ",
                                   cuts.status().message()));
}

size_t MostStagesOfADevice(const Schedule& schedule) {
  size_t most = 1;
  for (const auto& stages : schedule.stages_of) {
    most = std::max(most, stages.size());
  }
  return most;
}

// Charges the layers of overfull devices for the tied weights that others have,
// too. Has anything changed?
bool ChargeShared(const ModelProfile& profile, const Cuts& cuts,
                  const Schedule& schedule, int64_t device_bytes,
                  std::vector<LayerCost>& costs) {
  const std::vector<StageMemory> stages =
      StageMemories(profile, cuts, schedule);
  const std::vector<LayerRange> parts =
      PartsOf(cuts, static_cast<int64_t>(costs.size()));
  bool changed = false;
  for (const auto& its : schedule.stages_of) {
    int64_t need = 0;
    for (int stage : its) {
      need += stages[stage].state + stages[stage].activations;
    }
    if (need <= device_bytes) continue;
    for (int stage : its) {
      for (int64_t i = parts[stage].begin; i < parts[stage].end; ++i) {
        const int64_t all = profile.layers[i].state_bytes;
        changed = changed || costs[i].state_bytes != all;
        costs[i].state_bytes = all;
      }
    }
  }
  return changed;
}

// CutsByTime does not know tied weights. Where these make a device overflow, it
// is asked again with them charged to each layer there.
absl::StatusOr<Cuts> CutsByProfile(const ModelProfile& profile,
                                   const Schedule& schedule,
                                   const PipelineDevices& devices) {
  BalanceOptions options;
  options.seconds_per_message = devices.sending.seconds_per_message;
  options.seconds_per_byte = devices.sending.seconds_per_byte;
  options.activations_alive = MicrobatchesAlive(schedule);
  options.device_bytes = devices.device_bytes /
                         static_cast<int64_t>(MostStagesOfADevice(schedule));
  std::vector<LayerCost> costs = CostsWithSharedOnce(profile);
  absl::StatusOr<Cuts> cuts;
  do {
    cuts = CutsByTime(costs, schedule.stages, options);
  } while (cuts.ok() && devices.device_bytes > 0 &&
           ChargeShared(profile, *cuts, schedule, devices.device_bytes, costs));
  return cuts;
}

}  // namespace

absl::StatusOr<BalanceRule> ParseBalance(absl::string_view flag) {
  if (flag.empty() || flag == "parameters") {
    return BalanceRule{BalanceKind::kParameters};
  }
  if (flag == "uniform") return BalanceRule{BalanceKind::kUniform};
  if (flag == "profile") return BalanceRule{BalanceKind::kProfile};
  if (!absl::ConsumePrefix(&flag, "type:")) {
    return BalanceRule{BalanceKind::kCuts, std::string(flag)};
  }
  BalanceRule rule = {BalanceKind::kType, std::string(flag)};
  TANDEM_RETURN_IF_ERROR(CheckExpression(rule.text));
  return rule;
}

absl::StatusOr<Cuts> PartitionModel(const BalanceRule& rule,
                                    const ModelOutline& model,
                                    const Schedule& schedule,
                                    const PipelineDevices& devices) {
  const auto layers = static_cast<int64_t>(model.names.size());
  switch (rule.kind) {
    case BalanceKind::kUniform:
      return UniformCuts(layers, schedule.stages);
    case BalanceKind::kParameters:
      return CutsByParameters(model.parameters, schedule.stages);
    case BalanceKind::kType:
      return CutsByType(model.types, rule.text, schedule.stages);
    case BalanceKind::kCuts:
      return CutsAsGiven(rule.text, model.names, schedule.stages);
    case BalanceKind::kProfile:
      break;
  }
  if (!model.profile.has_value()) {
    return absl::InvalidArgumentError(
        "to cut by profile, the layers must have been measured");
  }
  return CutsByProfile(*model.profile, schedule, devices);
}

std::vector<int> MicrobatchesAlive(const Schedule& schedule) {
  std::vector<int> alive(schedule.stages, 0);
  std::vector<int> most(schedule.stages, 0);
  for (const auto& actions : schedule.actions) {
    for (const Action& action : actions) {
      int& now = alive[action.stage];
      if (action.kind == ActionKind::kForward) ++now;
      most[action.stage] = std::max(most[action.stage], now);
      if (action.kind == ActionKind::kBackward ||
          action.kind == ActionKind::kBackwardWeight) {
        --now;
      }
    }
  }
  return most;
}

std::vector<StageMemory> StageMemories(const ModelProfile& profile,
                                       const Cuts& cuts,
                                       const Schedule& schedule) {
  const std::vector<int> alive = MicrobatchesAlive(schedule);
  std::vector<StageMemory> stages;
  for (const LayerRange& part :
       PartsOf(cuts, static_cast<int64_t>(profile.layers.size()))) {
    int64_t kept = part.begin == 0
                       ? profile.input_bytes
                       : profile.layers[part.begin - 1].output_bytes;
    StageMemory memory;
    std::set<int> seen;
    for (int64_t i = part.begin; i < part.end; ++i) {
      const LayerProfile& layer = profile.layers[i];
      kept += layer.activation_bytes;
      memory.state += layer.state_bytes;
      for (const auto& [number, bytes] : layer.shared_state) {
        if (!seen.insert(number).second) memory.state -= bytes;
      }
    }
    memory.activations = kept * alive[stages.size()];
    stages.push_back(memory);
  }
  return stages;
}

ScheduleCosts ScheduleCostsOf(const ModelProfile& profile, const Cuts& cuts,
                              const Schedule& schedule,
                              const SendingCost& sending) {
  ScheduleCosts costs;
  costs.stages = StageCostsOf(profile, cuts);
  int messages = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    const int stage = static_cast<int>(i);
    if (DeviceOfStage(schedule, stage) == DeviceOfStage(schedule, stage + 1)) {
      continue;
    }
    ++messages;
    const auto bytes =
        static_cast<double>(profile.layers[cuts[i] - 1].output_bytes);
    costs.transfer +=
        sending.seconds_per_message + sending.seconds_per_byte * bytes;
  }
  if (messages > 0) costs.transfer /= messages;
  return costs;
}

}  // namespace tandem
