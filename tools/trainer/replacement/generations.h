// Generations of a job with --replace_replicas: a rank's way from one change of
// ranks to the next.

#ifndef TANDEM_TOOLS_TRAINER_REPLACEMENT_GENERATIONS_H_
#define TANDEM_TOOLS_TRAINER_REPLACEMENT_GENERATIONS_H_

#include <functional>

#include "absl/status/status.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/replacement/replacement.h"

namespace tandem {

// Sets a job up and trains it, until its end or that of its generation.
using RunGeneration = std::function<absl::Status(Job& job, Replacement*)>;

// Calls `run` with a job of each generation that this rank takes part in: as
// `first`, which has options and launch alone, but for those who are there. The
// devices that the first one takes, the others have.
absl::Status RunGenerations(Job first, const RunGeneration& run);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPLACEMENT_GENERATIONS_H_
