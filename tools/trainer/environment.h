// Job environment: what a job ran on, for whoever compares its times with
// another's.

#ifndef TANDEM_TOOLS_TRAINER_ENVIRONMENT_H_
#define TANDEM_TOOLS_TRAINER_ENVIRONMENT_H_

#include "tools/trainer/job/job.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

// "ranks" that train now, rank 0's "processor" with its instructions, "cores"
// and, with --device=cuda, its machine's "gpus"; "libtorch" and "compiler" of
// this build. Nothing that says whose machine it is.
SettingValues JobEnvironment(const Job& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_ENVIRONMENT_H_
