#include "parallel/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

char Letter(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return 'F';
    case ActionKind::kBackward:
      return 'B';
    case ActionKind::kBackwardInput:
      return 'I';
    case ActionKind::kBackwardWeight:
      return 'W';
  }
  return '?';
}

}  // namespace

int DeviceOfStage(const Schedule& schedule, int stage) {
  for (size_t device = 0; device < schedule.stages_of.size(); ++device) {
    const std::vector<int>& its = schedule.stages_of[device];
    if (std::find(its.begin(), its.end(), stage) != its.end()) {
      return static_cast<int>(device);
    }
  }
  return -1;
}

bool SplitsBackward(const Schedule& schedule) {
  for (const auto& actions : schedule.actions) {
    for (const Action& each : actions) {
      if (each.kind == ActionKind::kBackwardWeight) return true;
    }
  }
  return false;
}

GradientsCome OrderOfGradients(const Schedule& schedule) {
  bool ascends = true, descends = true;
  // The microbatches that each stage's input's parts came to, and its weights'.
  // A whole backward is both.
  std::map<std::pair<int, bool>, int> before;
  const auto note = [&](const Action& action, bool weights) {
    const auto [last, is_first] =
        before.emplace(std::pair(action.stage, weights), action.microbatch);
    if (is_first) return;
    ascends = ascends && action.microbatch > last->second;
    descends = descends && action.microbatch < last->second;
    last->second = action.microbatch;
  };
  for (const auto& actions : schedule.actions) {
    for (const Action& each : actions) {
      if (each.kind == ActionKind::kForward) continue;
      if (each.kind != ActionKind::kBackwardWeight) note(each, false);
      if (each.kind != ActionKind::kBackwardInput) note(each, true);
    }
  }
  if (ascends) return GradientsCome::kAscending;
  return descends ? GradientsCome::kDescending : GradientsCome::kInNoOrder;
}

std::string ToString(const Action& action, bool with_stage) {
  const std::string letter(1, Letter(action.kind));
  return with_stage ? absl::StrCat(action.stage, letter, action.microbatch)
                    : absl::StrCat(letter, action.microbatch);
}

std::string ToString(const Schedule& schedule) {
  bool with_stage = false;  // unless each is its device's number
  for (size_t device = 0; device < schedule.actions.size(); ++device) {
    for (const Action& each : schedule.actions[device]) {
      with_stage = with_stage || each.stage != static_cast<int>(device);
    }
  }
  return absl::StrJoin(
      schedule.actions, "\n", [&](std::string* out, const auto& actions) {
        absl::StrAppend(
            out, absl::StrJoin(actions, " ",
                               [&](std::string* text, const Action& action) {
                                 text->append(ToString(action, with_stage));
                               }));
      });
}

}  // namespace tandem
