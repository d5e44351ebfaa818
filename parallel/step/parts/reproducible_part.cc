// One order for every sum, in every layout: stages and other parts keep it
// (parallel/step/ordered_sums.h); here are its options, and what would let the
// layout be seen in the result.

#include "absl/strings/str_cat.h"
#include "parallel/reproducible/ordered_gradients.h"
#include "parallel/schedule/schedule.h"
#include "parallel/step/parts/rows.h"

namespace tandem {
namespace {

void DescribeReproducible(const MeshStrategyOptions& options,
                          NamedValues& values) {
  values["reproducible"] = SwitchText(options.reproducible);
  values["gradient_groups"] = absl::StrCat(options.gradient_groups);
}

constexpr char kDependsOnLayout[] =
    "$1 lets sums depend on the layout, which --reproducible cannot have: "
    "leave one out";
constexpr char kRounds[] =
    "$1 rounds what replicas send, which --reproducible cannot have: leave one "
    "out";

constexpr Exclusion kReproducibleExcludes[] = {
    {"ddp.delay_all_reduce_named_params",
     [](const MeshStrategyOptions& options) {
       return !options.ddp.delay_all_reduce_named_params.empty();
     },
     "delay_all_reduce_named_params", "delay_all_reduce_named_params",
     kDependsOnLayout},
    {"ddp.skip_all_reduce_unused_params",
     [](const MeshStrategyOptions& options) {
       return options.ddp.skip_all_reduce_unused_params;
     },
     "skip_all_reduce_unused_params", "skip_all_reduce_unused_params",
     kDependsOnLayout},
    {"ddp.static_graph",
     [](const MeshStrategyOptions& options) {
       return options.ddp.static_graph;
     },
     "static_graph", "static_graph", kDependsOnLayout},
    {"uneven_division",
     [](const MeshStrategyOptions& options) {
       return options.uneven_division != UnevenDivision::kSamples;
     },
     "an uneven_division other than by samples", "join_divide_by",
     kDependsOnLayout},
    {"sync_batch_norm",
     [](const MeshStrategyOptions& options) { return options.sync_batch_norm; },
     "sync_batch_norm", "sync_batch_norm", kDependsOnLayout},
    {"averaging",
     [](const MeshStrategyOptions& options) {
       return options.averaging.has_value();
     },
     "averaging of parameters", "average_parameters_every", kDependsOnLayout},
    {"pipeline.defers_statistics",
     [](const MeshStrategyOptions& options) {
       return options.pipeline.defers_statistics;
     },
     "deferred statistics", "deferred_batch_norm",
     "--deferred_batch_norm takes a replica's statistics together, which "
     "--reproducible cannot have: leave one out"},
    {"ddp.mixed_precision",
     [](const MeshStrategyOptions& options) {
       return options.ddp.mixed_precision.reduce_dtype.has_value();
     },
     "mixed_precision.reduce_dtype", "reduce_dtype", kRounds},
    {"make_hook",
     [](const MeshStrategyOptions& options) {
       return options.make_hook != nullptr;
     },
     "a communication hook", "comm_hook", kRounds},
    {"weight_gradient_batch",
     [](const MeshStrategyOptions& options) {
       return options.weight_gradient_batch > 1;
     },
     "weight_gradient_batch > 1", "weight_gradient_batch>1",
     "$1 computes gradients of several microbatches together, which "
     "--reproducible cannot have: leave one out"},
};

int ReproducibleTensors(const MeshStrategyOptions& options, int replicas) {
  if (!options.reproducible) return 0;
  GradientOrder order;
  order.microbatches = options.schedule.microbatches;
  order.groups = options.gradient_groups > 0 ? options.gradient_groups
                                             : order.microbatches * replicas;
  order.splits = SplitsBackward(options.schedule);
  return OrderedGradients::FurtherBuffers(order, replicas);
}

}  // namespace

constexpr StepPartRow kReproducibleRow = {
    "reproducible",
    nullptr,
    DescribeReproducible,
    nullptr,
    {[](const MeshStrategyOptions& options) { return options.reproducible; },
     "reproducible excludes ",
     ": sums would depend on the layout; leave one of them out",
     kReproducibleExcludes, "reproducible"},
    ReproducibleTensors};

}  // namespace tandem
