#include "tests/parallel/schedule/random_schedule.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

int Draw(int least, int most, std::mt19937& random) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

void ShareStages(const RandomShape& shape, std::mt19937& random,
                 Schedule* schedule) {
  std::vector<int> holders;
  for (int device = 0; device < shape.devices; ++device) {
    holders.insert(holders.end(),
                   static_cast<size_t>(Draw(1, shape.most_stages, random)),
                   device);
  }
  std::shuffle(holders.begin(), holders.end(), random);
  schedule->stages = static_cast<int>(holders.size());
  schedule->stages_of.resize(static_cast<size_t>(shape.devices));
  for (size_t stage = 0; stage < holders.size(); ++stage) {
    auto& device_stages =
        schedule->stages_of[static_cast<size_t>(holders[stage])];
    device_stages.push_back(static_cast<int>(stage));
  }
  for (auto& device_stages : schedule->stages_of) {
    std::shuffle(device_stages.begin(), device_stages.end(), random);
  }
}

// What could be next, as a pool that grows as actions are taken.
class Pool {
 public:
  Pool(const Schedule& schedule, std::mt19937& random)
      : schedule_(schedule), random_(random), way_(Draw(0, 2, random)) {
    for (int m = 0; m < schedule.microbatches; ++m) {
      next_.push_back({ActionKind::kForward, 0, m});
    }
  }

  bool empty() const { return next_.empty(); }

  Action Take() {
    const auto at = static_cast<size_t>(
        Draw(0, static_cast<int>(next_.size()) - 1, random_));
    const Action action = next_[at];
    next_.erase(next_.begin() + static_cast<std::ptrdiff_t>(at));
    AddWhatFollows(action);
    return action;
  }

 private:
  void AddBackward(int stage, int microbatch) {
    const bool splits = way_ == 1 || (way_ == 2 && Draw(0, 1, random_) == 1);
    next_.push_back(
        {splits ? ActionKind::kBackwardInput : ActionKind::kBackward, stage,
         microbatch});
  }

  void AddWhatFollows(const Action& action) {
    const int m = action.microbatch;
    if (action.kind == ActionKind::kBackwardWeight) return;
    if (action.kind == ActionKind::kForward) {
      if (action.stage + 1 < schedule_.stages) {
        next_.push_back({ActionKind::kForward, action.stage + 1, m});
      } else {
        AddBackward(action.stage, m);
      }
      return;
    }
    if (action.kind == ActionKind::kBackwardInput) {
      next_.push_back({ActionKind::kBackwardWeight, action.stage, m});
    }
    if (action.stage > 0) AddBackward(action.stage - 1, m);
  }

  const Schedule& schedule_;
  std::mt19937& random_;
  const int way_;  // 0: whole, 1: two parts, 2: either
  std::vector<Action> next_;
};

}  // namespace

Schedule RandomSchedule(const RandomShape& shape, std::mt19937& random) {
  Schedule schedule;
  schedule.microbatches = shape.microbatches;
  ShareStages(shape, random, &schedule);
  schedule.actions.resize(schedule.stages_of.size());
  Pool pool(schedule, random);
  while (!pool.empty()) {
    const Action action = pool.Take();
    const int device = DeviceOfStage(schedule, action.stage);
    schedule.actions[static_cast<size_t>(device)].push_back(action);
  }
  schedule.name = absl::StrCat("random\n", ToString(schedule), "\n");
  return schedule;
}

}  // namespace tandem
