// Fully sharded stages: their options, and when what they have gathered is
// freed outside of a step.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/fully_sharded/fully_sharded.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

class FullyShardedPart : public StepPart {
 public:
  explicit FullyShardedPart(const MeshModel& model) : model_(model) {}

  absl::Status Begin(StepContext& step) override {
    if (model_.shares->SomeHaveFewer()) step.reduces_at_end = true;
    return absl::OkStatus();
  }

  absl::Status EndInference(int stage) override {
    FullySharded* const sharded = model_.stage(stage).fully_sharded();
    if (sharded == nullptr) return absl::OkStatus();
    sharded->set_holds_all(false);
    return sharded->Reshard();
  }

 private:
  const MeshModel& model_;
};

absl::StatusOr<std::unique_ptr<StepPart>> MakeFullySharded(MeshModel& model) {
  if (!ShardsGradients(model.options.shard)) {
    return std::unique_ptr<StepPart>();
  }
  return std::make_unique<FullyShardedPart>(model);
}

void DescribeFullySharded(const MeshStrategyOptions& options,
                          NamedValues& values) {
  values["data_shard"] = absl::StrCat(options.data_shard);
  values["shard_min_num_params"] = absl::StrCat(options.shard_min_num_params);
  values["reshard_after_forward"] =
      options.reshard_after_forward ? "true" : "false";
  values["max_unsharded_stages"] =
      absl::StrCat(options.pipeline.max_unsharded_stages);
}

absl::Status CheckFullySharded(const MeshStrategyOptions& options) {
  if (options.data_shard < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_shard is ", options.data_shard,
                     ": expected how many replicas share, or 0 for all"));
  }
  if (options.shard_min_num_params < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard_min_num_params is ", options.shard_min_num_params,
                     ": expected a number of parameters, or 0"));
  }
  if (options.pipeline.max_unsharded_stages < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_unsharded_stages is ", options.pipeline.max_unsharded_stages,
        ": expected how many stages a device has whole at a time, or 0 for all "
        "of its stages"));
  }
  return absl::OkStatus();
}

constexpr char kAverages[] =
    "$0 averages gradients itself, a share a rank, which $2 does in another "
    "way: leave one of them out";

constexpr Exclusion kFullyShardedExcludes[] = {
    {"make_hook",
     [](const MeshStrategyOptions& options) {
       return options.make_hook != nullptr;
     },
     "make_hook, which averages in another way", "comm_hook", kAverages},
    {"ddp.mixed_precision",
     [](const MeshStrategyOptions& options) {
       return options.ddp.mixed_precision.reduce_dtype.has_value();
     },
     "ddp.mixed_precision.reduce_dtype", "reduce_dtype", kAverages},
    {"ddp.delay_all_reduce_named_params",
     [](const MeshStrategyOptions& options) {
       return !options.ddp.delay_all_reduce_named_params.empty();
     },
     "ddp.delay_all_reduce_named_params, which averages at another time",
     "delay_all_reduce_named_params", kAverages},
};

}  // namespace

constexpr StepPartRow kFullyShardedRow = {
    "fully_sharded",
    MakeFullySharded,
    DescribeFullySharded,
    CheckFullySharded,
    {[](const MeshStrategyOptions& options) {
       return ShardsGradients(options.shard);
     },
     "shard excludes ", "; leave one of them out", kFullyShardedExcludes,
     "shard=gradients|parameters"}};

}  // namespace tandem
