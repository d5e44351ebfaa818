// Job secret of a program: from a flag or a variable, or made by a launcher.

#ifndef TANDEM_CORE_RUN_SECRET_SETUP_H_
#define TANDEM_CORE_RUN_SECRET_SETUP_H_

#include <string>

#include "absl/status/status.h"
#include "core/launch/resolve_launch.h"

namespace tandem {

// Reads the secret in `file`, or, where that is empty, in the file that
// TANDEM_JOB_SECRET_FILE names, and makes it this process's
// (core/store/guard/job_secret.h). Where neither is given and `plan` is of a
// launcher of all the job's ranks, makes a new one, which the ranks that it
// starts find by that variable: its value is a path that this user alone can
// read. A further call does nothing after one that has set a secret.
//
// InvalidArgument, FailedPrecondition, NotFound: what is wrong with the file,
// or that the ranks meet where no secret is asked for (a file, torchrun's
// store).
absl::Status UseJobSecret(const LaunchPlan& plan, const std::string& file);

}  // namespace tandem

#endif  // TANDEM_CORE_RUN_SECRET_SETUP_H_
