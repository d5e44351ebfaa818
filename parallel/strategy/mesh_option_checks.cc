#include "parallel/strategy/mesh_option_checks.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/ddp/option_checks.h"

namespace tandem {
namespace {

absl::Status CheckValues(const MeshStrategyOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckUpdateOptions(options));
  if (options.uneven_batches && options.reproducible &&
      options.microbatch_size == 0) {
    return absl::InvalidArgumentError(
        "uneven_batches with reproducible needs a microbatch_size: the same "
        "microbatches in every layout, however many there are");
  }
  if (options.sync_batch_norm && options.averaging) {
    return absl::InvalidArgumentError(
        "sync_batch_norm has replicas normalise together, averaging has them "
        "train apart: leave one of them out");
  }
  TANDEM_RETURN_IF_ERROR(CheckDdpValues(options.ddp));
  if (options.make_hook && options.ddp.mixed_precision.reduce_dtype) {
    return absl::InvalidArgumentError(
        "mixed_precision.reduce_dtype is a communication hook, and make_hook "
        "gives another: leave one of them out");
  }
  if (options.microbatch_size < 0 || options.weight_gradient_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "microbatch_size must be 0 or more and weight_gradient_batch 1 or "
        "more, but ",
        options.microbatch_size, " and ", options.weight_gradient_batch,
        " were given"));
  }
  return absl::OkStatus();
}

absl::Status CheckSharding(const MeshStrategyOptions& options) {
  const std::string culprit = ExcludesSharding(options);
  if (options.shard_optimizer != OptimizerSharding::kOn || culprit.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "shard_optimizer excludes ", culprit, "; leave one of them out"));
}

// What has collectives of its own in the update, or has no moment before it.
absl::Status CheckUpdatesLast(const MeshStrategyOptions& options) {
  if (!options.updates_last) return absl::OkStatus();
  const char* culprit = nullptr;
  if (options.averaging) culprit = "averaging of parameters";
  if (options.shard_optimizer != OptimizerSharding::kOff) {
    culprit = "shard_optimizer";
  }
  if (culprit == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("updates_last excludes ", culprit,
                   ", whose updates have collectives; leave one of them out"));
}

// What would let the layout be seen in the result.
absl::Status CheckReproducible(const MeshStrategyOptions& options) {
  if (!options.reproducible) return absl::OkStatus();
  const char* culprit = nullptr;
  if (options.weight_gradient_batch > 1) culprit = "weight_gradient_batch > 1";
  if (options.make_hook) culprit = "a communication hook";
  if (options.ddp.mixed_precision.reduce_dtype) {
    culprit = "mixed_precision.reduce_dtype";
  }
  if (options.pipeline.defers_statistics) culprit = "deferred statistics";
  if (options.averaging) culprit = "averaging of parameters";
  if (options.sync_batch_norm) culprit = "sync_batch_norm";
  if (options.uneven_division != UnevenDivision::kSamples) {
    culprit = "an uneven_division other than by samples";
  }
  if (options.ddp.static_graph) culprit = "static_graph";
  if (options.ddp.skip_all_reduce_unused_params) {
    culprit = "skip_all_reduce_unused_params";
  }
  if (!options.ddp.delay_all_reduce_named_params.empty()) {
    culprit = "delay_all_reduce_named_params";
  }
  if (culprit == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reproducible excludes ", culprit,
                   ": sums would depend on the layout; leave one of them out"));
}

}  // namespace

std::string ExcludesSharding(const MeshStrategyOptions& options) {
  constexpr char kMoves[] = ", which moves parameters after the first step";
  if (options.averaging) return "averaging, with which replicas train apart";
  if (options.ddp.static_graph) return absl::StrCat("ddp.static_graph", kMoves);
  if (options.ddp.skip_all_reduce_unused_params) {
    return absl::StrCat("ddp.skip_all_reduce_unused_params", kMoves);
  }
  if (options.compares_replicas) {
    return "comparing replicas, which its owners' values make alike in each "
           "step, corrupted or not";
  }
  return "";
}

absl::Status CheckMeshOptions(const MeshStrategyOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckValues(options));
  TANDEM_RETURN_IF_ERROR(CheckSharding(options));
  TANDEM_RETURN_IF_ERROR(CheckUpdatesLast(options));
  return CheckReproducible(options);
}

}  // namespace tandem
