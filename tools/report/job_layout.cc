#include "tools/report/job_layout.h"

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/drawing/markup.h"
#include "core/mesh/mesh.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/drawing.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/simulation.h"
#include "parallel/schedule/validator.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {
namespace {

// What is made of settings that others wrote stays as small as this.
constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kMostStages = 1024;
constexpr int64_t kMostActions = 1 << 17;  // pairs of stage and microbatch
// More are no picture, and megabytes.
constexpr int64_t kMostDrawnActions = 512;

// -1 for what is no count, which nothing takes.
int64_t CountIn(const EventFields& settings, absl::string_view name,
                int64_t otherwise) {
  if (FindField(settings, name) == nullptr) return otherwise;
  return CountField(settings, name).value_or(-1);
}

// Reads "data 2 x pipe 3 x tensor 2" (Mesh::ToString).
bool ReadMesh(const std::string& text, JobLayout* layout) {
  int64_t ranks = 1;
  for (const absl::string_view axis : absl::StrSplit(text, " x ")) {
    const std::vector<absl::string_view> words = absl::StrSplit(axis, ' ');
    int64_t degree = 0;
    if (words.size() != 2 || !absl::SimpleAtoi(words[1], &degree) ||
        degree < 1 || degree > kMostRanks) {
      return false;
    }
    ranks *= degree;
    if (ranks > kMostRanks) return false;
    if (IsSampleAxis(words[0])) layout->data *= degree;
    if (words[0] == kShardAxis) layout->shard = degree;
    if (words[0] == kPipeAxis) layout->pipe = degree;
    if (words[0] == kTensorAxis) layout->tensor = degree;
  }
  return true;
}

// Fills in what replicas share. What --shard=auto came to is said in the words
// of Strategy::DescribeSharding.
void ReadSharding(const EventFields& settings, JobLayout* layout) {
  if (layout->data == 1) return;
  const std::string asked = TextField(settings, "shard");
  if (asked == "parameters" || asked == "gradients") {
    layout->shared = asked;
  } else if (absl::StartsWith(TextField(settings, "optimizer_state"),
                              "shared by ")) {
    layout->shared = "optimizer state";
  }
}

// Fills in what is known of a pipeline: nothing of a file's schedule, which is
// never opened: its path is what somebody wrote.
void ReadPipeline(const EventFields& settings, JobLayout* layout) {
  PipelineSettings pipeline;
  pipeline.schedule = TextField(settings, "schedule");
  pipeline.pipe = layout->pipe;
  pipeline.chunks = CountIn(settings, "chunks", 0);
  pipeline.microbatches = CountIn(settings, "microbatches", 0);
  pipeline.microbatch_size = CountIn(settings, "microbatch_size", 0);
  PipelineContext around;
  around.strategy = layout->strategy;
  around.devices_per_rank = layout->devices_per_rank;
  around.batch_size = CountIn(settings, "batch_size", 1);
  if (!IsPipeline(pipeline, around)) return;
  layout->schedule = pipeline.schedule;
  if (IsScheduleFile(pipeline.schedule)) return;
  if (!Validate(pipeline, around).ok()) return;
  const int64_t devices = layout->pipeline_devices();
  const absl::StatusOr<int64_t> microbatches = MicrobatchesFor(
      pipeline, devices, CountIn(settings, "batch_per_replica", 1));
  if (!microbatches.ok()) return;
  const int64_t chunks =
      pipeline.chunks > 0 ? pipeline.chunks : UsualChunks(pipeline.schedule);
  if (devices * chunks > kMostStages) return;
  layout->stages = devices * chunks;
  layout->microbatches = *microbatches;
}

absl::StatusOr<SchedulePrediction> PredictionOf(const Schedule& schedule) {
  TANDEM_RETURN_IF_ERROR(
      ValidateSchedule(schedule, {schedule.microbatches, 0}).status());
  ScheduleCosts costs;
  costs.stages.assign(schedule.stages, StageCost());
  return PredictSchedule(schedule, costs);
}

std::string Plural(int64_t count, const std::string& one,
                   const char* ending = "s") {
  return absl::StrCat(count, " ", one, count == 1 ? "" : ending);
}

// "a pipeline of 4 stages on 2 ranks (1f1b, 8 microbatches)".
std::string DescribePipeline(const JobLayout& layout) {
  std::string text = "a pipeline";
  if (layout.stages > 0) {
    absl::StrAppend(&text, " of ", Plural(layout.stages, "stage"));
  }
  absl::StrAppend(&text, " on ",
                  layout.pipe > 1 ? Plural(layout.pipe, "rank")
                                  : Plural(layout.devices_per_rank, "device"));
  if (layout.pipe > 1 && layout.devices_per_rank > 1) {
    absl::StrAppend(&text, " of ", Plural(layout.devices_per_rank, "device"));
  }
  absl::StrAppend(&text, " (", layout.schedule);
  if (layout.microbatches > 0) {
    absl::StrAppend(&text, ", ",
                    Plural(layout.microbatches, "microbatch", "es"));
  }
  return text + ")";
}

}  // namespace

std::optional<JobLayout> ReadLayout(const EventFields& settings) {
  JobLayout layout;
  layout.strategy = TextField(settings, "strategy");
  layout.device = TextField(settings, "device");
  layout.devices_per_rank = CountIn(settings, "devices_per_rank", 1);
  if (layout.strategy == "parameter_server") {
    layout.servers = CountIn(settings, "servers", 1);
  }
  if (!ReadMesh(TextField(settings, "mesh"), &layout) ||
      layout.devices_per_rank < 1 || layout.devices_per_rank > kMostStages ||
      layout.servers < 0 || layout.servers > kMostRanks) {
    return std::nullopt;
  }
  ReadSharding(settings, &layout);
  ReadPipeline(settings, &layout);
  return layout;
}

absl::StatusOr<Schedule> LayoutSchedule(const JobLayout& layout) {
  if (layout.stages < 1 || layout.microbatches > kMostActions / layout.stages) {
    return absl::InvalidArgumentError("too many actions");
  }
  const auto devices = static_cast<int>(layout.pipeline_devices());
  return MakeSchedule(layout.schedule,
                      {devices, static_cast<int>(layout.stages) / devices,
                       static_cast<int>(layout.microbatches)});
}

namespace {

// What ranks that share layers have together.
std::string DescribeWholeLayers(const JobLayout& layout) {
  std::string text;
  if (layout.servers > 0) {
    text = absl::StrCat(Plural(layout.data, "worker"), " and ",
                        Plural(layout.servers, "parameter server"));
  } else if (layout.is_pipeline()) {
    text = layout.data > 1 ? absl::StrCat(layout.data, " replicas, each ",
                                          DescribePipeline(layout))
                           : DescribePipeline(layout);
  } else if (layout.is_data_parallel()) {
    text = absl::StrCat(layout.data * layout.devices_per_rank,
                        " replicas on the devices of ",
                        Plural(layout.data, "rank"));
  } else if (layout.devices_per_rank > 1) {
    text = absl::StrCat(
        layout.data > 1 ? absl::StrCat(layout.data, " replicas, each ") : "",
        "a model over ", Plural(layout.devices_per_rank, "device"),
        ", in turns");
  } else {
    const bool are_ranks = layout.tensor == 1;
    text = layout.data > 1 ? absl::StrCat(layout.data, " replicas",
                                          are_ranks ? ", one a rank" : "", " (",
                                          layout.strategy, ")")
           : are_ranks     ? "one device"
                           : "one model";
  }
  return text;
}

}  // namespace

std::string DescribeLayout(const JobLayout& layout) {
  std::string text = DescribeWholeLayers(layout);
  if (!layout.shared.empty()) {
    absl::StrAppend(&text, ", ", layout.shared, " shared");
    if (layout.shares_in_groups()) {
      absl::StrAppend(&text, " in groups of ", layout.shard);
    }
  }
  if (layout.tensor > 1) {
    absl::StrAppend(&text, ", each layer shared by ", layout.tensor, " ranks");
  }
  return layout.device.empty() ? text : absl::StrCat(text, ", ", layout.device);
}

std::string ScheduleDrawing(const JobLayout& layout) {
  if (!layout.is_pipeline()) return "";
  const absl::StatusOr<Schedule> schedule = LayoutSchedule(layout);
  if (!schedule.ok()) return "";
  const absl::StatusOr<SchedulePrediction> times = PredictionOf(*schedule);
  if (!times.ok()) return "";
  if (layout.stages * layout.microbatches > kMostDrawnActions) {
    return absl::StrFormat(
        "<p>%s with %d stages and %d microbatches has a bubble of %.3g %% if "
        "all stages take as long: too many actions to be drawn here; "
        "<code>bazel run //tools:schedule</code> draws them.</p>\n",
        EscapedMarkup(layout.schedule), layout.stages, layout.microbatches,
        100 * times->bubble / (times->step - times->bubble));
  }
  return absl::StrCat(
      "<figure class=\"schedule\"><div class=\"scroll\">\n",
      DrawSvg(layout.schedule, *times),
      "</div><figcaption>One step of a replica as the schedule has it, if all "
      "stages take as long, and a backward twice as long as a forward."
      "</figcaption></figure>\n");
}

}  // namespace tandem
