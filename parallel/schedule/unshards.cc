#include "parallel/schedule/unshards.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem {
namespace {

// The first `most` stages that actions from `begin` on compute with.
std::set<int> NextStages(const std::vector<Action>& actions, size_t begin,
                         size_t most) {
  std::set<int> next;
  for (size_t i = begin; i < actions.size() && next.size() < most; ++i) {
    next.insert(actions[i].stage);
  }
  return next;
}

std::vector<Action> WithUnshards(const std::vector<Action>& actions,
                                 size_t most) {
  std::vector<Action> all;
  std::set<int> there;
  const auto gather = [&](int stage) {
    if (!there.insert(stage).second) return;
    all.push_back({ActionKind::kUnshard, stage, 0});
  };
  for (size_t i = 0; i <= actions.size(); ++i) {
    const std::set<int> next = NextStages(actions, i, most);
    for (const int stage : std::set<int>(there)) {
      if (next.count(stage) > 0) continue;
      there.erase(stage);
      all.push_back({ActionKind::kReshard, stage, 0});
    }
    if (i == actions.size()) break;
    gather(actions[i].stage);  // that which is waited for comes first
    absl::c_for_each(next, gather);
    all.push_back(actions[i]);
  }
  return all;
}

// One device's stages while its actions are gone through.
class Unsharded {
 public:
  Unsharded(const Schedule& schedule, int device, int most)
      : schedule_(schedule), device_(device), most_(most) {}

  absl::Status Take(const Action& action) {
    if (action.kind == ActionKind::kUnshard) return Gather(action);
    if (action.kind == ActionKind::kReshard) {
      if (there_.erase(action.stage) > 0) return absl::OkStatus();
      return Wrong(action,
                   ", whose parameters are not there: U must stand "
                   "before it");
    }
    if (there_.count(action.stage) > 0) return absl::OkStatus();
    return Wrong(action,
                 ", whose parameters are not there: U must stand "
                 "before it, and R behind the last action");
  }

  absl::Status End() const {
    if (there_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule ", schedule_.name, ": device ", device_, " never frees the ",
        "parameters of stage ", *there_.begin(), ": R must stand at its end"));
  }

  int peak() const { return peak_; }

 private:
  absl::Status Gather(const Action& action) {
    if (!there_.insert(action.stage).second) {
      return Wrong(action, ", whose parameters are there already");
    }
    peak_ = std::max(peak_, static_cast<int>(there_.size()));
    if (most_ == 0 || peak_ <= most_) return absl::OkStatus();
    return Wrong(action, absl::StrCat(", with which it has the parameters of ",
                                      peak_, " stages, but may have ", most_));
  }

  absl::Status Wrong(const Action& action, absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", schedule_.name, ": device ", device_, " has ",
                     ToString(action, /*with_stage=*/false), " of stage ",
                     action.stage, what));
  }

  const Schedule& schedule_;
  const int device_;
  const int most_;
  std::set<int> there_;
  int peak_ = 0;
};

}  // namespace

bool HasUnshards(const Schedule& schedule) {
  return absl::c_any_of(schedule.actions, [](const auto& actions) {
    return absl::c_any_of(
        actions, [](const Action& each) { return !Computes(each.kind); });
  });
}

Schedule WithUnshards(Schedule schedule, int most) {
  if (HasUnshards(schedule)) return schedule;
  for (std::vector<Action>& actions : schedule.actions) {
    actions = WithUnshards(
        actions, static_cast<size_t>(most > 0 ? most : schedule.stages));
  }
  return schedule;
}

absl::Status CheckUnshards(const Schedule& schedule, int most,
                           std::vector<int>* peaks) {
  peaks->assign(schedule.actions.size(), 0);
  if (!HasUnshards(schedule)) return absl::OkStatus();
  for (int device = 0; device < schedule.devices(); ++device) {
    Unsharded unsharded(schedule, device, most);
    for (const Action& each : schedule.actions[static_cast<size_t>(device)]) {
      if (const absl::Status taken = unsharded.Take(each); !taken.ok()) {
        return taken;
      }
    }
    if (const absl::Status ended = unsharded.End(); !ended.ok()) return ended;
    (*peaks)[static_cast<size_t>(device)] = unsharded.peak();
  }
  return absl::OkStatus();
}

}  // namespace tandem
