// Table of a training step's parts, in the order in which the driver calls
// them, and what it says of options, flags and state.

#ifndef TANDEM_PARALLEL_STEP_PARTS_STEP_PARTS_H_
#define TANDEM_PARALLEL_STEP_PARTS_STEP_PARTS_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/agreement/agreement.h"
#include "core/memory/state_bytes.h"
#include "parallel/step/mesh_strategy_options.h"
#include "parallel/step/parts/rows.h"
#include "parallel/step/step_part.h"

namespace tandem {

struct MeshModel;

// The order is that of a step's collectives, and of what is computed between
// them: a row that moves changes what ranks wait for.
absl::Span<const StepPartRow* const> StepPartRows();

// The parts that the model's options ask for. Its groups are there; its stages
// need not be yet. Collective.
absl::StatusOr<StepPartList> MakeStepParts(MeshModel& model);

// Adds the values of all parts' options, for ranks to compare.
void DescribeStepParts(const MeshStrategyOptions& options, NamedValues& values);

// InvalidArgument, naming the options, for a value that is out of its range,
// and for options that exclude each other; in the order of the table.
absl::Status CheckMeshOptions(const MeshStrategyOptions& options);

// The first of `others` that is given; null: none is.
const Exclusion* FirstGiven(absl::Span<const Exclusion> others,
                            const MeshStrategyOptions& options);

// An option with which replicas cannot share the optimizer, for a person;
// empty: none is given.
std::string ExcludesSharding(const MeshStrategyOptions& options);

// InvalidArgument, naming the flags, for those that exclude each other, as the
// table of parts says (rows.h). `given`: by their names the flags that are not
// as usual, with their values. A part and an option that flags do not have are
// left out.
absl::Status CheckStepFlags(const NamedValues& given);

// Names of the flags by which the state of parts and optimizers goes.
std::set<std::string> StepStateFlags();

// The state that a job with such options keeps for each parameter, before there
// is a strategy: on each device of one of so many replicas. `share_memory`: all
// of them do, so that Sharding::kAuto shares what large stages have;
// small ones, which it leaves alone, hold little. Of what a communication hook
// keeps nothing is known here.
StatePerParameter KeptStatePerParameter(const MeshStrategyOptions& options,
                                        int replicas, bool share_memory);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_PARTS_STEP_PARTS_H_
