// Draws a pipeline's schedule and says what it costs. --help.

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/files/user_path.h"
#include "core/program/command_line.h"
#include "core/program/exit_code.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/drawing.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/simulation.h"
#include "parallel/schedule/validator.h"

ABSL_FLAG(std::string, schedule, "1f1b",
          "gpipe, 1f1b, interleaved_1f1b, looped_bfs, zb_h1, zb_v; or a file "
          "with one of your own (a path with a slash).");
ABSL_FLAG(int, stages, 4, "Stages of the pipeline, over all devices.");
ABSL_FLAG(int, chunks, 0,
          "Stages a device; 0: 2 for zb_v, 2 for interleaved_1f1b and "
          "looped_bfs where the stages are even, else 1.");
ABSL_FLAG(int, microbatches, 8, "Microbatches of a step.");
ABSL_FLAG(std::vector<std::string>, times, (std::vector<std::string>{"1", "2"}),
          "What a stage takes for one microbatch: forward,backward, or "
          "forward,input,weights for the parts of backward. Any unit.");
ABSL_FLAG(std::string, stage_times, "",
          "Where stages differ: the same for each, separated by ;.");
ABSL_FLAG(double, transfer, 0,
          "Time from the end of a stage until the next device has its result.");
ABSL_FLAG(int, channel_capacity, -1,
          "Messages that a channel holds; -1: as few as the schedule needs.");
ABSL_FLAG(int, columns, 100, "Width of the drawing in text.");
ABSL_FLAG(std::string, svg, "", "File to draw it to as an image.");
ABSL_FLAG(std::string, trace, "", "File to write it to as a trace.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Draws a pipeline's schedule, proves that it ends, and predicts its time.\n"
    "\n"
    "  schedule --schedule=1f1b --stages=4 --microbatches=8\n"
    "  schedule --schedule=zb_h1 --times=1,1,1 --svg=zb.svg\n"
    "  schedule --schedule=./mine.txt\n";

// Times that a picture has room for, and that add up to a number.
constexpr double kLeastTime = 1e-12;
constexpr double kMostTime = 1e12;

bool IsTime(double time) {
  return time == 0 || (time >= kLeastTime && time <= kMostTime);
}

absl::Status CheckFlags() {
  struct Range {
    const char* flag;
    int given;
    int least;
    int most;
  };
  for (const Range& each :
       {Range{"stages", absl::GetFlag(FLAGS_stages), 1, 10000},
        Range{"chunks", absl::GetFlag(FLAGS_chunks), 0, 10000},
        Range{"microbatches", absl::GetFlag(FLAGS_microbatches), 1, 1000000},
        Range{"channel_capacity", absl::GetFlag(FLAGS_channel_capacity), -1,
              1000000},
        Range{"columns", absl::GetFlag(FLAGS_columns), 10, 1000}}) {
    if (each.given >= each.least && each.given <= each.most) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", each.flag, "=", each.given, ": must be from ",
                     each.least, " to ", each.most));
  }
  const double transfer = absl::GetFlag(FLAGS_transfer);
  if (IsTime(transfer)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--transfer=", transfer, ": must be 0, or from ", kLeastTime,
                   " to ", kMostTime));
}

absl::StatusOr<Schedule> ScheduleFromFlags() {
  const std::string name = absl::GetFlag(FLAGS_schedule);
  if (IsScheduleFile(name)) {
    TANDEM_RETURN_IF_ERROR(CheckUseless({"stages", "chunks", "microbatches"},
                                        "the file of --schedule says that"));
    return ReadScheduleFile(name);
  }
  const int stages = absl::GetFlag(FLAGS_stages);
  const int given = absl::GetFlag(FLAGS_chunks);
  const int microbatches = absl::GetFlag(FLAGS_microbatches);
  const int chunks = given > 0 ? given : UsualChunks(name, stages);
  if (stages % chunks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stages=", stages, " does not divide by ", chunks,
                     " stages a device (--chunks)"));
  }
  return MakeSchedule(name, {stages / chunks, chunks, microbatches});
}

absl::StatusOr<StageCost> ParseCost(const std::vector<std::string>& words) {
  std::vector<double> times;
  for (const std::string& word : words) {
    double time = 0;
    if (absl::SimpleAtod(word, &time) && IsTime(time)) times.push_back(time);
  }
  if (times.size() == words.size() && times.size() == 2) {
    return StageCost{times[0], times[1] / 2, times[1] / 2};
  }
  if (times.size() == words.size() && times.size() == 3) {
    return StageCost{times[0], times[1], times[2]};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("times '", absl::StrJoin(words, ","),
                   "': expected forward,backward or forward,input,weights, "
                   "each 0 or from ",
                   kLeastTime, " to ", kMostTime));
}

absl::StatusOr<ScheduleCosts> CostsFromFlags(int stages) {
  ScheduleCosts costs;
  costs.transfer = absl::GetFlag(FLAGS_transfer);
  const std::string each = absl::GetFlag(FLAGS_stage_times);
  if (each.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const StageCost cost,
                            ParseCost(absl::GetFlag(FLAGS_times)));
    costs.stages.assign(stages, cost);
    return costs;
  }
  TANDEM_RETURN_IF_ERROR(
      CheckUseless({"times"}, "--stage_times has those of each stage"));
  for (const auto stage : absl::StrSplit(each, ';')) {
    TANDEM_ASSIGN_OR_RETURN(costs.stages.emplace_back(),
                            ParseCost(absl::StrSplit(stage, ',')));
  }
  return costs;
}

// Nothing can be told in percent, or drawn, about a step that takes no time.
absl::Status CheckBusy(const SchedulePrediction& times) {
  if (times.step > times.bubble) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--times or --stage_times: no stage takes any time: give one that is "
      "greater than 0");
}

absl::Status Write(const std::string& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  return WriteOutputFile(UserPath(path), text);
}

void Say(const Schedule& schedule, const ScheduleFacts& facts, int capacity,
         const SchedulePrediction& times) {
  std::cout << absl::StrFormat(
      "%s: %d stages on %d devices, %d microbatches\n\n%s\n", schedule.name,
      schedule.stages, schedule.devices(), schedule.microbatches,
      DrawText(times, absl::GetFlag(FLAGS_columns)));
  std::cout << absl::StrFormat(
      "step               %g\n"
      "bubble             %g (%.1f %% of the busiest device's work)\n"
      "idle               %.1f %% of all devices' time\n"
      "peak activations   %s (microbatches alive, by device)\n"
      "channel capacity   %d\n",
      times.step, times.bubble,
      100 * times.bubble / (times.step - times.bubble), 100 * times.idle,
      absl::StrJoin(facts.peak_activations, ", "), capacity);
}

absl::Status Run(int argc, char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers,
                          ParseCommandLine(argc, argv, kUsage));
  if (!leftovers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", leftovers.front(), "' is no flag"));
  }
  TANDEM_RETURN_IF_ERROR(CheckFlags());
  TANDEM_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleFromFlags());
  int capacity = absl::GetFlag(FLAGS_channel_capacity);
  if (capacity < 0) {
    TANDEM_ASSIGN_OR_RETURN(capacity, LeastChannelCapacity(schedule));
  }
  TANDEM_ASSIGN_OR_RETURN(const ScheduleFacts facts,
                          ValidateSchedule(schedule, {capacity, 0}));
  TANDEM_ASSIGN_OR_RETURN(const ScheduleCosts costs,
                          CostsFromFlags(schedule.stages));
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction times,
                          PredictSchedule(schedule, costs));
  TANDEM_RETURN_IF_ERROR(CheckBusy(times));
  Say(schedule, facts, capacity, times);
  TANDEM_RETURN_IF_ERROR(
      Write(absl::GetFlag(FLAGS_svg), DrawSvg(schedule.name, times)));
  return Write(absl::GetFlag(FLAGS_trace), DrawTrace(times));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::Conclude("schedule", tandem::Run(argc, argv));
}
