#include "parallel/partition/partition.h"

#include <algorithm>
#include <cstddef>
#include <regex>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "parallel/partition/balance.h"
#include "parallel/partition/part_costs.h"
#include "parallel/schedule/simulation.h"
#include "parallel/schedule/validator.h"

namespace tandem {
namespace {

using Moment = std::vector<PartAlive>;

// Goes through a device's actions.
class Walk {
 public:
  Walk(const Schedule& schedule, ActivationCheckpointing checkpointing,
       const std::vector<int>& stages)
      : schedule_(schedule),
        checkpointing_(checkpointing),
        stages_(stages),
        now_(stages.size(), PartAlive{0, 0}) {}

  std::vector<Moment> Through(const std::vector<Action>& actions) {
    for (const Action& action : actions) Take(action);
    return {moments_.begin(), moments_.end()};
  }

 private:
  void Take(const Action& action) {
    const auto place = std::find(stages_.begin(), stages_.end(), action.stage);
    PartAlive& alive = now_[static_cast<size_t>(place - stages_.begin())];
    const bool is_kept = KeepsActivations(checkpointing_, action.microbatch,
                                          schedule_.microbatches);
    if (IsForward(action.kind)) {
      ++alive.inputs;
      if (is_kept) ++alive.activations;
    } else if (GivesInputGradient(action.kind) && !is_kept) {
      ++alive.activations;
    }
    moments_.insert(now_);
    if (EndsBackward(action.kind)) {
      --alive.inputs;
      --alive.activations;
    }
  }

  const Schedule& schedule_;
  const ActivationCheckpointing checkpointing_;
  const std::vector<int>& stages_;
  Moment now_;
  std::set<Moment> moments_;
};

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

// With each tied weight charged to the first layer that has it of each part.
std::vector<LayerCost> CostsOfParts(const ModelProfile& profile,
                                    const Cuts& cuts) {
  std::vector<LayerCost> costs = LayerCosts(profile);
  for (const LayerRange& part :
       LayerRanges(cuts, static_cast<int64_t>(costs.size()))) {
    std::set<int> seen;
    for (int64_t i = part.begin; i < part.end; ++i) {
      for (const auto& [number, bytes] : profile.layers[i].shared_state) {
        if (!seen.insert(number).second) costs[i].state_bytes -= bytes;
      }
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

// Charges the layers of overfull devices for the tied weights that others have,
// too. Has anything changed?
bool ChargeShared(const ModelProfile& profile, const Cuts& cuts,
                  const Schedule& schedule, const PipelineDevices& devices,
                  std::vector<LayerCost>& costs) {
  const std::vector<int64_t> needs =
      DeviceMemories(profile, cuts, schedule, devices.checkpointing);
  const std::vector<LayerRange> parts =
      LayerRanges(cuts, static_cast<int64_t>(costs.size()));
  bool changed = false;
  for (size_t device = 0; device < needs.size(); ++device) {
    if (needs[device] <= devices.device_bytes) continue;
    for (int stage : schedule.stages_of[device]) {
      for (int64_t i = parts[stage].begin; i < parts[stage].end; ++i) {
        const int64_t all = profile.layers[i].state_bytes;
        changed = changed || costs[i].state_bytes != all;
        costs[i].state_bytes = all;
      }
    }
  }
  return changed;
}

// Stages alike can matter more than devices alike: which do?
absl::StatusOr<Cuts> Better(const Cuts& by_device, const Cuts& by_stage,
                            const ModelProfile& profile,
                            const Schedule& schedule,
                            const PipelineDevices& devices) {
  if (!FitsDevices(profile, by_stage, schedule, devices)) return by_device;
  TANDEM_ASSIGN_OR_RETURN(const double with_devices,
                          PredictedStep(profile, by_device, schedule, devices));
  TANDEM_ASSIGN_OR_RETURN(const double with_stages,
                          PredictedStep(profile, by_stage, schedule, devices));
  return with_stages < with_devices ? by_stage : by_device;
}

// CutsByTime does not know tied weights. Where these make a device overflow, it
// is asked again with them charged to each layer there.
absl::StatusOr<Cuts> CutsByProfile(const ModelProfile& profile,
                                   const Schedule& schedule,
                                   const PipelineDevices& devices) {
  TANDEM_RETURN_IF_ERROR(
      ValidateSchedule(schedule, {schedule.microbatches, 0}).status());
  BalanceOptions options;
  options.seconds_per_message = devices.sending.seconds_per_message;
  options.seconds_per_byte = devices.sending.seconds_per_byte;
  options.device_bytes = devices.device_bytes;
  options.gathered_together = profile.gathered_together;
  options.devices = KeptMicrobatches(schedule, devices.checkpointing);
  const double again =
      RecomputedShare(devices.checkpointing, schedule.microbatches);
  std::vector<LayerCost> costs = CostsOfParts(profile, /*cuts=*/{});
  for (LayerCost& each : costs) each.backward += again * each.forward;
  absl::StatusOr<Cuts> cuts;
  do {
    cuts = CutsByTime(costs, schedule.stages, options);
  } while (cuts.ok() && devices.device_bytes > 0 &&
           ChargeShared(profile, *cuts, schedule, devices, costs));
  if (!cuts.ok() || schedule.stages == schedule.devices()) return cuts;
  options.devices.clear();
  options.device_bytes = 0;
  TANDEM_ASSIGN_OR_RETURN(const Cuts by_stage,
                          CutsByTime(costs, schedule.stages, options));
  return Better(*cuts, by_stage, profile, schedule, devices);
}

}  // namespace

std::vector<BalanceDevice> KeptMicrobatches(
    const Schedule& schedule, ActivationCheckpointing checkpointing) {
  std::vector<BalanceDevice> devices;
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    BalanceDevice device;
    device.parts = schedule.stages_of[i];
    device.moments = Walk(schedule, checkpointing, device.parts)
                         .Through(schedule.actions[i]);
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<int> MicrobatchesAlive(const Schedule& schedule) {
  std::vector<int> most(static_cast<size_t>(schedule.stages), 0);
  for (const BalanceDevice& device : KeptMicrobatches(schedule)) {
    for (const Moment& moment : device.moments) {
      for (size_t i = 0; i < moment.size(); ++i) {
        int& greatest = most[static_cast<size_t>(device.parts[i])];
        greatest = std::max(greatest, moment[i].inputs);
      }
    }
  }
  return most;
}

double RecomputedShare(ActivationCheckpointing checkpointing,
                       int microbatches) {
  int recomputed = 0;
  for (int m = 0; m < microbatches; ++m) {
    if (!KeepsActivations(checkpointing, m, microbatches)) ++recomputed;
  }
  return static_cast<double>(recomputed) / microbatches;
}

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

std::vector<StageMemory> StageMemories(const ModelProfile& profile,
                                       const Cuts& cuts,
                                       const Schedule& schedule,
                                       ActivationCheckpointing checkpointing) {
  const std::vector<LayerCost> layers = CostsOfParts(profile, cuts);
  BalanceOptions options;
  options.gathered_together = profile.gathered_together;
  options.devices = KeptMicrobatches(schedule, checkpointing);
  const PartCosts costs(layers, options);
  const std::vector<LayerRange> parts =
      LayerRanges(cuts, static_cast<int64_t>(layers.size()));
  std::vector<StageMemory> stages;
  for (const LayerRange& part : parts) {
    stages.push_back({costs.State(part), 0, costs.Evaluated(part)});
  }
  for (const BalanceDevice& device : options.devices) {
    for (const auto& moment : device.moments) {
      for (size_t i = 0; i < moment.size(); ++i) {
        const int stage = device.parts[i];
        stages[stage].activations = std::max(
            stages[stage].activations, costs.Kept(parts[stage], moment[i]));
      }
    }
  }
  return stages;
}

std::vector<int64_t> DeviceMemories(const ModelProfile& profile,
                                    const Cuts& cuts, const Schedule& schedule,
                                    ActivationCheckpointing checkpointing) {
  const std::vector<LayerCost> layers = CostsOfParts(profile, cuts);
  BalanceOptions options;
  options.gathered_together = profile.gathered_together;
  options.devices = KeptMicrobatches(schedule, checkpointing);
  return PartCosts(layers, options).DeviceBytes(cuts);
}

bool FitsDevices(const ModelProfile& profile, const Cuts& cuts,
                 const Schedule& schedule, const PipelineDevices& devices) {
  if (devices.device_bytes == 0) return true;
  const std::vector<int64_t> needs =
      DeviceMemories(profile, cuts, schedule, devices.checkpointing);
  return std::all_of(needs.begin(), needs.end(), [&](int64_t bytes) {
    return bytes <= devices.device_bytes;
  });
}

ScheduleCosts MakeScheduleCosts(const ModelProfile& profile, const Cuts& cuts,
                                const Schedule& schedule,
                                const SendingCost& sending,
                                ActivationCheckpointing checkpointing) {
  ScheduleCosts costs;
  const double again = RecomputedShare(checkpointing, schedule.microbatches);
  for (const LayerRange& part :
       LayerRanges(cuts, static_cast<int64_t>(profile.layers.size()))) {
    StageCost& stage = costs.stages.emplace_back(StageCost{0, 0, 0});
    for (int64_t i = part.begin; i < part.end; ++i) {
      stage.forward += profile.layers[i].forward;
      stage.backward_input += profile.layers[i].backward_input;
      stage.backward_weight += profile.layers[i].backward_weight;
    }
    stage.backward_input += again * stage.forward;
  }
  const std::vector<int> device_of = DevicesOfStages(schedule);
  int messages = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (device_of[i] == device_of[i + 1]) continue;
    ++messages;
    const auto bytes =
        static_cast<double>(profile.layers[cuts[i] - 1].output_bytes);
    costs.transfer +=
        sending.seconds_per_message + sending.seconds_per_byte * bytes;
  }
  if (messages > 0) costs.transfer /= messages;
  return costs;
}

absl::StatusOr<double> PredictedStep(const ModelProfile& profile,
                                     const Cuts& cuts, const Schedule& schedule,
                                     const PipelineDevices& devices) {
  TANDEM_ASSIGN_OR_RETURN(
      const SchedulePrediction predicted,
      PredictSchedule(
          schedule, MakeScheduleCosts(profile, cuts, schedule, devices.sending,
                                      devices.checkpointing)));
  return predicted.step;
}

}  // namespace tandem
