// Job layout: from a run's settings to its mesh of ranks and its pipeline, in
// words; and the timeline of its schedule.

#ifndef TANDEM_TOOLS_REPORT_JOB_LAYOUT_H_
#define TANDEM_TOOLS_REPORT_JOB_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "parallel/schedule/schedule.h"
#include "tools/report/event_fields.h"

namespace tandem {

struct JobLayout {
  std::string strategy;  // "ddp"
  std::string device;    // "cpu"
  // Ranks that train: data x pipe.
  int64_t data = 1;  // replicas
  int64_t pipe = 1;
  int64_t tensor = 1;  // ranks that share each layer
  // What replicas share among them ("parameters"); empty: each has all.
  std::string shared;
  int64_t shard = 1;  // replicas of one of their groups; 1: all are one
  int64_t devices_per_rank = 1;
  int64_t servers = 0;  // ranks beside them
  // What a pipeline has; else, or where nobody can tell, they are 0.
  std::string schedule;
  int64_t stages = 0;
  int64_t microbatches = 0;  // of a replica's step

  int64_t ranks() const { return data * pipe * tensor + servers; }
  int64_t pipeline_devices() const { return pipe * devices_per_rank; }
  bool is_pipeline() const {
    return !schedule.empty() && pipeline_devices() > 1;
  }
  bool is_data_parallel() const { return strategy == "data_parallel"; }
  // Whether replicas share in several groups, of which each has all (HSDP).
  bool shares_in_groups() const {
    return !shared.empty() && shard > 1 && shard < data;
  }
};

// None where the settings, which anybody may have written, make none.
std::optional<JobLayout> ReadLayout(const EventFields& settings);

// "2 replicas, each a pipeline of 4 stages on 2 ranks (1f1b, 8 microbatches)",
// or "4 replicas, one a rank (ddp), parameters shared in groups of 2".
std::string DescribeLayout(const JobLayout& layout);

// The schedule of a pipeline. An error for a file's schedule, and where there
// are too many actions.
absl::StatusOr<Schedule> LayoutSchedule(const JobLayout& layout);

// The timeline of one step by its schedule, if all stages take as long: SVG in
// a figure of a page, or in words where there are too many actions to see.
// Empty where there is no pipeline.
std::string ScheduleDrawing(const JobLayout& layout);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_JOB_LAYOUT_H_
