// Rows of the table of a training step's parts, each of which stands in the
// file of its technique.

#ifndef TANDEM_PARALLEL_STEP_PARTS_ROWS_H_
#define TANDEM_PARALLEL_STEP_PARTS_ROWS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "core/agreement/agreement.h"
#include "parallel/step/mesh_strategy_options.h"
#include "parallel/step/step_part.h"

namespace tandem {

inline std::string SwitchText(bool on) { return on ? "true" : "false"; }

// Every digit: what differs in the last one trains another model.
inline std::string NumberText(double value) {
  return absl::StrFormat("%.17g", value);
}

struct MeshModel;

// An option that cannot be given together with a part.
struct Exclusion {
  const char* option;  // its member of MeshStrategyOptions: "ddp.static_graph"
  // Null: flags alone have such an option, by this name, for what makes no mesh
  // strategy, or makes one only in part.
  bool (*is_given)(const MeshStrategyOptions& options);
  const char* what;  // in the message
  // The same for the flags of a program: the one that gives the option, with
  // any value that is not as usual ("static_graph"), with one value
  // ("shard=optimizer|gradients") or with more than one
  // ("weight_gradient_batch>1"), and the message. In it $0 and $1 are the flags
  // of the part and of the option as they were given, "--static_graph=true",
  // and $2 the latter's name alone.
  const char* flag;
  const char* flag_message;
};

// Exclusions of a part. Where one of `others` is given with it the message is
// `begins`, the first such `what`, `ends`.
struct Exclusions {
  bool (*is_on)(const MeshStrategyOptions& options) = nullptr;
  const char* begins = "";
  const char* ends = "";
  absl::Span<const Exclusion> others = {};
  const char* flag = "";  // that asks for the part, as Exclusion's
};

struct StepPartRow {
  const char* name;
  // Makes the part, or null where the options do not ask for it. No function:
  // the technique is the engine's, or the stages', own.
  absl::StatusOr<std::unique_ptr<StepPart>> (*make)(MeshModel& model) = nullptr;
  // Adds the values of its options, by their names, for ranks to compare. No
  // function: it has none.
  void (*describe)(const MeshStrategyOptions& options,
                   NamedValues& values) = nullptr;
  // InvalidArgument, naming the option, for a value that is out of its range.
  // No function: any is in it.
  absl::Status (*check)(const MeshStrategyOptions& options) = nullptr;
  Exclusions exclusions = {};
  // How many tensors more, each of the parameters' sizes, a rank keeps because
  // of the part, where there are so many replicas. No function: none.
  int (*further_state)(const MeshStrategyOptions& options,
                       int replicas) = nullptr;
  // Flags of a program by which that state goes, and the optimizers': a job
  // that goes on is told of other values.
  absl::Span<const char* const> state_flags = {};
};

// Makes the part of a technique that is in every step.
template <typename Part>
absl::StatusOr<std::unique_ptr<StepPart>> MakeStepPart(MeshModel& model) {
  return std::make_unique<Part>(model);
}

extern const StepPartRow kAveragingRow;
extern const StepPartRow kBatchSharesRow;
extern const StepPartRow kBuffersRow;
extern const StepPartRow kEmaRow;
extern const StepPartRow kFullyShardedRow;
extern const StepPartRow kGradientNormRow;
extern const StepPartRow kLossScaleRow;
extern const StepPartRow kLossTermsRow;
extern const StepPartRow kOptimizerRow;
extern const StepPartRow kReplicasRow;
extern const StepPartRow kReproducibleRow;
extern const StepPartRow kScoreRow;
extern const StepPartRow kShardedOptimizerRow;
extern const StepPartRow kStagesRow;
extern const StepPartRow kSyncBatchNormRow;
extern const StepPartRow kTensorParallelRow;
extern const StepPartRow kTiedWeightsRow;
extern const StepPartRow kTimesRow;
extern const StepPartRow kUpdatesLastRow;

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_PARTS_ROWS_H_
