// Step flags: what the parts of a training step exclude and keep, by a
// program's flags.

#ifndef TANDEM_PARALLEL_STEP_PARTS_STEP_FLAGS_H_
#define TANDEM_PARALLEL_STEP_PARTS_STEP_FLAGS_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "core/agreement/agreement.h"

namespace tandem {

// InvalidArgument, naming the flags, for those that exclude each other, as the
// table of parts says (step_part_row.h). `given`: by their names the flags that
// are not as usual, with their values. A part and an option that flags do not
// have are left out.
absl::Status CheckStepFlags(const NamedValues& given);

// Names of the flags by which the state of parts and optimizers goes.
std::set<std::string> StepStateFlags();

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_PARTS_STEP_FLAGS_H_
