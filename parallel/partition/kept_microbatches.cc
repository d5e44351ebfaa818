#include "parallel/partition/kept_microbatches.h"

#include <algorithm>
#include <cstddef>
#include <set>

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
    PartAlive& its = now_[static_cast<size_t>(place - stages_.begin())];
    const bool is_kept = KeepsActivations(checkpointing_, action.microbatch,
                                          schedule_.microbatches);
    if (IsForward(action.kind)) {
      ++its.inputs;
      if (is_kept) ++its.activations;
    } else if (GivesInputGradient(action.kind) && !is_kept) {
      ++its.activations;
    }
    moments_.insert(now_);
    if (EndsBackward(action.kind)) {
      --its.inputs;
      --its.activations;
    }
  }

  const Schedule& schedule_;
  const ActivationCheckpointing checkpointing_;
  const std::vector<int>& stages_;
  Moment now_;
  std::set<Moment> moments_;
};

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
        int& its = most[static_cast<size_t>(device.parts[i])];
        its = std::max(its, moment[i].inputs);
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

}  // namespace tandem
