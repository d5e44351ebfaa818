// What goes with how many replicas a job has.

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

// Whether one replica does something by it all the same.
bool ServesOne(const TrainOptions& options, const std::string& flag,
               const SettingValue& value) {
  if (flag == "gradient_accumulation_steps") return true;
  // Nothing is shared, as it was asked for.
  if (flag == "shard_optimizer") return ToText(value) == "off";
  // The outer optimizer follows one replica's own steps as well.
  const std::set<std::string> averages = {
      "average_parameters_every", "average_parameters_warmup_steps",
      "outer_learning_rate", "outer_momentum"};
  return HasOuterOptimizer(options.ddp) && averages.count(flag) > 0;
}

// The first flag that one replica alone has no use for; empty: none is given.
std::string FirstForSeveral(const TrainOptions& options) {
  if (options.check_replicas_every > 0) {
    return absl::StrCat("--check_replicas_every=",
                        options.check_replicas_every);
  }
  if (options.reduce_dtype != TrainOptions().reduce_dtype) {
    return absl::StrCat("--reduce_dtype=", options.reduce_dtype);
  }
  for (const auto& [flag, value] :
       Differing(Describe(options.ddp), Describe(DdpSettings()))) {
    if (ServesOne(options, flag, value)) continue;
    return absl::StrCat("--", flag, "=", ToText(value));
  }
  return "";
}

}  // namespace

absl::Status CheckReplicas(const TrainOptions& options, int64_t replicas) {
  if (!IsPipeline(options.pipeline, SurroundingsOf(options))) {
    return absl::OkStatus();
  }
  const bool is_hybrid = options.strategy == "hybrid" ||
                         options.pipeline.reproducible || replicas > 1;
  for (const auto& [flag, value] :
       Differing(Describe(options.ddp), Describe(DdpSettings()))) {
    const bool accumulates = flag == "gradient_accumulation_steps";
    if (is_hybrid && !accumulates) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", ToText(value),
        accumulates
            ? " is for replicas in one piece, but a pipeline accumulates over "
              "its microbatches: leave it out, and give a larger --batch_size "
              "with more --microbatches"
            : " is for replicas, but a pipeline is one replica and averages "
              "nothing: leave it out"));
  }
  return absl::OkStatus();
}

absl::Status CheckForOneReplica(const TrainOptions& options) {
  if (ServersOf(options) > 0) return absl::OkStatus();
  const std::string given = FirstForSeveral(options);
  if (given.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      given,
      " is about several replicas, but this job has one, which does nothing by "
      "it: leave it out, or start more ranks (--nproc_per_node)"));
}

}  // namespace tandem
