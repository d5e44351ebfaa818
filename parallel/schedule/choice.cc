#include "parallel/schedule/choice.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"

namespace tandem {
namespace {

constexpr int kMost = 1 << 20;  // of stages and microbatches

std::optional<ActionKind> ActionKindOfLetter(char letter) {
  switch (letter) {
    case 'F':
      return ActionKind::kForward;
    case 'B':
      return ActionKind::kBackward;
    case 'I':
      return ActionKind::kBackwardInput;
    case 'W':
      return ActionKind::kBackwardWeight;
    case 'U':
      return ActionKind::kUnshard;
    case 'R':
      return ActionKind::kReshard;
    default:
      return std::nullopt;
  }
}

bool ParseNumber(absl::string_view text, int* number) {
  return absl::SimpleAtoi(text, number) && *number >= 0 && *number < kMost;
}

std::optional<Action> ParseAction(absl::string_view word, int device) {
  const size_t letter = word.find_first_not_of("0123456789");
  if (letter == absl::string_view::npos) return std::nullopt;
  const std::optional<ActionKind> kind = ActionKindOfLetter(word[letter]);
  Action action;
  action.stage = device;
  const bool right =
      kind.has_value() &&
      (letter == 0 || ParseNumber(word.substr(0, letter), &action.stage)) &&
      (Computes(*kind)
           ? ParseNumber(word.substr(letter + 1), &action.microbatch)
           : letter + 1 == word.size());
  if (!right) return std::nullopt;
  action.kind = *kind;
  return action;
}

void AddDevice(const std::vector<Action>& actions, Schedule* schedule) {
  std::set<int> stages;
  for (const Action& action : actions) {
    stages.insert(action.stage);
    schedule->stages = std::max(schedule->stages, action.stage + 1);
    schedule->microbatches =
        std::max(schedule->microbatches, action.microbatch + 1);
  }
  schedule->stages_of.emplace_back(stages.begin(), stages.end());
  schedule->actions.push_back(actions);
}

// A thousand devices with a thousand microbatches have less.
constexpr uintmax_t kMostBytes = uintmax_t{64} << 20;

// A device has no end, and a pipe may keep its reader waiting.
absl::Status CheckIsFile(const std::string& path, const std::string& at) {
  std::error_code error;
  if (!std::filesystem::exists(at, error)) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path));
  }
  if (!std::filesystem::is_regular_file(at, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is no regular file: give one with a schedule's actions"));
  }
  const uintmax_t bytes = std::filesystem::file_size(at, error);
  if (bytes <= kMostBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, " has ", bytes, " bytes, a schedule at most ", kMostBytes));
}

}  // namespace

absl::StatusOr<Schedule> ParseSchedule(const std::string& name,
                                       absl::string_view text) {
  Schedule schedule;
  schedule.name = name;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    std::vector<Action> actions;
    for (absl::string_view word :
         absl::StrSplit(line, absl::ByAnyChar(" ,\t\r"), absl::SkipEmpty())) {
      const auto action = ParseAction(word, schedule.devices());
      if (!action.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("schedule ", name, ", line ", number, ": '", word,
                         "' is no action; expected one like F0, B3, I1, W1, U, "
                         "R, or with its stage 4F0"));
      }
      actions.push_back(*action);
    }
    if (!actions.empty()) AddDevice(actions, &schedule);
  }
  if (schedule.devices() > 0) return schedule;
  return absl::InvalidArgumentError(
      absl::StrCat("schedule ", name, " has no actions"));
}

bool IsScheduleFile(absl::string_view choice) {
  return choice.find('/') != absl::string_view::npos;
}

absl::StatusOr<Schedule> ReadScheduleFile(const std::string& path) {
  const std::string at = UserPath(path);
  TANDEM_RETURN_IF_ERROR(CheckIsFile(path, at));
  std::ifstream file(at);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::ostringstream text;
  text << file.rdbuf();
  return ParseSchedule(path, text.str());
}

int UsualChunks(absl::string_view name) {
  const bool several =
      name == "zb_v" || name == "interleaved_1f1b" || name == "looped_bfs";
  return several ? 2 : 1;
}

int UsualChunks(absl::string_view name, int stages) {
  const int usual = UsualChunks(name);
  return name == "zb_v" || stages % usual == 0 ? usual : 1;
}

NamedValues ScheduleValues(const Schedule& schedule) {
  NamedValues values = {
      {"stages", absl::StrCat(schedule.stages)},
      {"microbatches", absl::StrCat(schedule.microbatches)},
  };
  for (size_t d = 0; d < schedule.actions.size(); ++d) {
    const auto word = [](std::string* out, const Action& action) {
      out->append(ToString(action, /*with_stage=*/true));
    };
    values[absl::StrCat("device ", d)] =
        absl::StrCat("stages ",
                     d < schedule.stages_of.size()
                         ? absl::StrJoin(schedule.stages_of[d], " ")
                         : "",
                     "; ", absl::StrJoin(schedule.actions[d], " ", word));
  }
  return values;
}

}  // namespace tandem
