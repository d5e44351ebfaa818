// Replicas that average their gradients: stages do it by themselves
// (parallel/strategy/stage/stage_reducer.h); here are its options.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/precision/mixed_precision.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/ddp/options.h"
#include "parallel/step/parts/rows.h"
#include "parallel/step/step_part_row.h"

namespace tandem {
namespace {

std::string MibText(const std::optional<double>& mib) {
  return mib.has_value() ? NumberText(*mib) : "unset";
}

void DescribeReplicas(const MeshStrategyOptions& options, NamedValues& values) {
  const DistributedDataParallelOptions& ddp = options.ddp;
  values["ddp.init_sync"] = SwitchText(ddp.init_sync);
  values["ddp.bucket_cap_mb"] = MibText(ddp.bucket_cap_mb);
  values["ddp.bucket_cap_mb_list"] = absl::StrJoin(
      ddp.bucket_cap_mb_list, ",", [](std::string* out, double mib) {
        absl::StrAppend(out, NumberText(mib));
      });
  values["ddp.find_unused_parameters"] = SwitchText(ddp.find_unused_parameters);
  values["ddp.static_graph"] = SwitchText(ddp.static_graph);
  values["ddp.delay_all_reduce_named_params"] =
      absl::StrJoin(ddp.delay_all_reduce_named_params, ",");
  values["ddp.param_to_hook_all_reduce"] = ddp.param_to_hook_all_reduce;
  values["ddp.skip_all_reduce_unused_params"] =
      SwitchText(ddp.skip_all_reduce_unused_params);
  values["ddp.parameters_to_ignore"] =
      absl::StrJoin(ddp.parameters_to_ignore, ",");
  values["ddp.mixed_precision"] = Describe(ddp.mixed_precision);
  values["compares_replicas"] = SwitchText(options.compares_replicas);
  values["make_hook"] = SwitchText(options.make_hook != nullptr);
}

absl::Status CheckReplicas(const MeshStrategyOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckDdpValues(options.ddp));
  if (options.make_hook && options.ddp.mixed_precision.reduce_dtype) {
    return absl::InvalidArgumentError(
        "mixed_precision.reduce_dtype is a communication hook, and make_hook "
        "gives another: leave one of them out");
  }
  return absl::OkStatus();
}

}  // namespace

constexpr StepPartRow kReplicasRow = {"replicas", nullptr, DescribeReplicas,
                                      CheckReplicas};

}  // namespace tandem
