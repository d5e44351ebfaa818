// Rows without a part: options of what the driver, stages and the engine do by
// themselves. The driver asks BatchShares for shares of a global batch, stages
// average gradients over replicas (parallel/strategy/stage/trained_stage.h),
// and the engine runs the stages of a schedule.

#include <optional>
#include <string>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/precision/mixed_precision.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/ddp/options.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/update_options.h"
#include "parallel/schedule/choice.h"
#include "parallel/step/parts/rows.h"

namespace tandem {
namespace {

void DescribeBatchShares(const MeshStrategyOptions& options,
                         NamedValues& values) {
  values["microbatch_size"] = absl::StrCat(options.microbatch_size);
  values["uneven_batches"] = SwitchText(options.uneven_batches);
  values["uneven_division"] =
      absl::StrCat(static_cast<int>(options.uneven_division));
}

absl::Status CheckBatchShares(const MeshStrategyOptions& options) {
  if (options.uneven_batches && options.reproducible &&
      options.microbatch_size == 0) {
    return absl::InvalidArgumentError(
        "uneven_batches with reproducible needs a microbatch_size: the same "
        "microbatches in every layout, however many there are");
  }
  return absl::OkStatus();
}

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

void DescribeTensorParallel(const MeshStrategyOptions& options,
                            NamedValues& values) {
  values["tensor"] = absl::StrCat(options.tensor);
  values["sequence_parallel"] = SwitchText(options.sequence_parallel);
}

absl::Status CheckTensorParallel(const MeshStrategyOptions& options) {
  if (options.tensor >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor is ", options.tensor,
                   ": expected how many ranks share each layer, 1 or more"));
}

constexpr Exclusion kTensorParallelExcludes[] = {
    {"reproducible",
     [](const MeshStrategyOptions& options) { return options.reproducible; },
     "reproducible, for sums depend on how many ranks share a layer",
     "reproducible",
     "$0 has sums depend on how many ranks share a layer, which --reproducible "
     "cannot have: leave one out"},
    {"optimizer",
     [](const MeshStrategyOptions& options) {
       return absl::c_any_of(AllOptimizers(options),
                             [](const OptimizerOptions& each) {
                               return std::holds_alternative<MuonOptions>(each);
                             });
     },
     "Muon, which steps whole matrices", "optimizer=muon",
     "$0 divides the matrices that $1 steps whole: leave one out, or take "
     "--optimizer=adamw"},
    {"lora_rank", nullptr, "", "lora_rank",
     "$0 divides layers without their adapters ($1): leave one out"},
    {"vocab_parallel", nullptr, "", "vocab_parallel",
     "$0 and $1 both divide the vocabulary, one among ranks, the other among "
     "stages: leave one out"},
    {"strategy", nullptr, "", "strategy=data_parallel|parameter_server",
     "$0 is for replicas of ranks that share layers, but $1 was given: leave "
     "one out"},
};

}  // namespace

constexpr StepPartRow kTensorParallelRow = {
    "tensor_parallel",
    nullptr,
    DescribeTensorParallel,
    CheckTensorParallel,
    {[](const MeshStrategyOptions& options) { return options.tensor > 1; },
     "tensor parallelism excludes ", "; leave one of them out",
     kTensorParallelExcludes, "tensor>1"}};

constexpr StepPartRow kBatchSharesRow = {"batch_shares", nullptr,
                                         DescribeBatchShares, CheckBatchShares};

constexpr StepPartRow kReplicasRow = {"replicas", nullptr, DescribeReplicas,
                                      CheckReplicas};

constexpr StepPartRow kStagesRow = {"stages", nullptr, DescribeStages,
                                    CheckStages};

}  // namespace tandem
