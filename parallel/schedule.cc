#include "parallel/schedule.h"

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
  std::map<std::pair<int, ActionKind>, int> before;  // microbatches
  for (const auto& actions : schedule.actions) {
    for (const Action& each : actions) {
      if (each.kind == ActionKind::kForward) continue;
      const auto [last, is_first] =
          before.emplace(std::pair(each.stage, each.kind), each.microbatch);
      if (is_first) continue;
      ascends = ascends && each.microbatch > last->second;
      descends = descends && each.microbatch < last->second;
      last->second = each.microbatch;
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
  const bool with_stage = schedule.stages > schedule.devices();
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
