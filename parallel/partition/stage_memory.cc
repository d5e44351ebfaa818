// What stages and devices hold, and what a schedule's parts cost.

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "parallel/balance/balance.h"
#include "parallel/partition/kept_microbatches.h"
#include "parallel/partition/partition.h"

namespace tandem {
namespace {

// What one microbatch keeps in a stage.
struct StageKeeps {
  int64_t input = 0;
  int64_t activations = 0;

  int64_t At(const PartAlive& alive) const {
    return alive.inputs * input + alive.activations * activations;
  }
};

std::vector<StageKeeps> KeptBy(const ModelProfile& profile, const Cuts& cuts) {
  std::vector<StageKeeps> stages;
  for (const LayerRange& part :
       PartsOf(cuts, static_cast<int64_t>(profile.layers.size()))) {
    StageKeeps keeps;
    keeps.input = part.begin == 0 ? profile.input_bytes
                                  : profile.layers[part.begin - 1].output_bytes;
    for (int64_t i = part.begin; i < part.end; ++i) {
      keeps.activations += profile.layers[i].activation_bytes;
    }
    stages.push_back(keeps);
  }
  return stages;
}

int64_t StateOf(const ModelProfile& profile, const LayerRange& part) {
  int64_t state = 0;
  std::set<int> seen;
  for (int64_t i = part.begin; i < part.end; ++i) {
    const LayerProfile& layer = profile.layers[i];
    state += layer.state_bytes;
    for (const auto& [number, bytes] : layer.shared_state) {
      if (!seen.insert(number).second) state -= bytes;
    }
  }
  return state;
}

// The most that a stage's layers take in an evaluation: they are computed one
// after the other.
int64_t EvaluationOf(const std::vector<int64_t>& layers,
                     const LayerRange& part) {
  return *std::max_element(layers.begin() + part.begin,
                           layers.begin() + part.end);
}

}  // namespace

std::vector<StageMemory> StageMemories(const ModelProfile& profile,
                                       const Cuts& cuts,
                                       const Schedule& schedule,
                                       ActivationCheckpointing checkpointing) {
  const std::vector<StageKeeps> keeps = KeptBy(profile, cuts);
  const std::vector<int64_t> evaluation = EvaluationBytes(profile);
  std::vector<StageMemory> stages;
  for (const LayerRange& part :
       PartsOf(cuts, static_cast<int64_t>(profile.layers.size()))) {
    stages.push_back(
        {StateOf(profile, part), 0, EvaluationOf(evaluation, part)});
  }
  for (const BalanceDevice& device :
       KeptMicrobatches(schedule, checkpointing)) {
    for (const auto& moment : device.moments) {
      for (size_t i = 0; i < moment.size(); ++i) {
        const int stage = device.parts[i];
        stages[stage].activations =
            std::max(stages[stage].activations, keeps[stage].At(moment[i]));
      }
    }
  }
  return stages;
}

std::vector<int64_t> DeviceMemories(const ModelProfile& profile,
                                    const Cuts& cuts, const Schedule& schedule,
                                    ActivationCheckpointing checkpointing) {
  const std::vector<StageKeeps> keeps = KeptBy(profile, cuts);
  const std::vector<LayerRange> parts =
      PartsOf(cuts, static_cast<int64_t>(profile.layers.size()));
  const std::vector<int64_t> evaluation = EvaluationBytes(profile);
  std::vector<int64_t> devices;
  for (const BalanceDevice& device :
       KeptMicrobatches(schedule, checkpointing)) {
    int64_t state = 0;
    int64_t most = 0;
    for (int stage : device.parts) {
      state += StateOf(profile, parts[stage]);
      most = std::max(most, EvaluationOf(evaluation, parts[stage]));
    }
    for (const auto& moment : device.moments) {
      int64_t kept = 0;
      for (size_t i = 0; i < moment.size(); ++i) {
        kept += keeps[device.parts[i]].At(moment[i]);
      }
      most = std::max(most, kept);
    }
    devices.push_back(state + most);
  }
  return devices;
}

ScheduleCosts ScheduleCostsOf(const ModelProfile& profile, const Cuts& cuts,
                              const Schedule& schedule,
                              const SendingCost& sending,
                              ActivationCheckpointing checkpointing) {
  ScheduleCosts costs;
  costs.stages = StageCostsOf(profile, cuts);
  const double again = RecomputedShare(checkpointing, schedule.microbatches);
  for (StageCost& each : costs.stages) {
    each.backward_input += again * each.forward;
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

}  // namespace tandem
