// Stages of a schedule: the engine runs them; here are its options.

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/schedule/values.h"
#include "parallel/step/parts/rows.h"

namespace tandem {
namespace {

void DescribeStages(const MeshStrategyOptions& options, NamedValues& values) {
  for (const auto& [name, value] : ScheduleValues(options.schedule)) {
    values[absl::StrCat("schedule's ", name)] = value;
  }
  values["cuts"] = absl::StrJoin(options.cuts, ",");
  values["devices.size()"] = absl::StrCat(options.devices.size());
  values["pipeline.checkpointing"] =
      absl::StrCat(static_cast<int>(options.pipeline.checkpointing));
  values["pipeline.selective.layers"] = options.pipeline.selective.layers;
  values["pipeline.selective.every"] =
      absl::StrCat(options.pipeline.selective.every);
  values["weight_gradient_batch"] = absl::StrCat(options.weight_gradient_batch);
  values["seed"] = absl::StrCat(options.seed);
}

absl::Status CheckStages(const MeshStrategyOptions& options) {
  if (options.microbatch_size < 0 || options.weight_gradient_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "microbatch_size must be 0 or more and weight_gradient_batch 1 or "
        "more, but ",
        options.microbatch_size, " and ", options.weight_gradient_batch,
        " were given"));
  }
  return absl::OkStatus();
}

}  // namespace

constexpr StepPartRow kStagesRow = {"stages", nullptr, DescribeStages,
                                    CheckStages};

}  // namespace tandem
